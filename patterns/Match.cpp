#include "patterns/Match.h"
#include "ir/text/Text.h"
#include "mlir/IR/MLIRContext.h"
#include "patterns/CrossEntropy.h"
#include "patterns/Outline.h"
#include "patterns/Rope.h"

namespace cermet {

bool match(llvm::StringRef graphText, std::string& json, std::string& error, FindMore findMore) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  auto graph = ir::parseGraph(graphText, context, error);
  if (!graph)
    return false;
  mlir::func::FuncOp function = ir::graphFunction(*graph);
  RaiseResult raised = raise(function);
  const NodeValues nodes(function);
  std::vector<Cluster> clusters = findRopes(function, nodes, raised.nearMisses);
  for (Cluster& cluster : findCrossEntropies(function, nodes, raised.nearMisses))
    clusters.push_back(std::move(cluster));
  if (findMore)
    for (Cluster& cluster : findMore(function, clusters, nodes, raised.nearMisses))
      clusters.push_back(std::move(cluster));
  json = matchAnswer(raised, clusters);
  return true;
}

} // namespace cermet
