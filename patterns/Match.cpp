#include "patterns/Match.h"
#include "patterns/CrossEntropy.h"
#include "patterns/Outline.h"
#include "patterns/Rope.h"

namespace cermet {

std::string match(mlir::func::FuncOp function, FindMore findMore) {
  RaiseResult raised = raise(function);
  const NodeValues nodes(function);
  std::vector<Cluster> clusters = findRopes(function, nodes, raised.nearMisses);
  for (Cluster& cluster : findCrossEntropies(function, nodes, raised.nearMisses))
    clusters.push_back(std::move(cluster));
  if (findMore)
    for (Cluster& cluster : findMore(function, clusters, nodes, raised.nearMisses))
      clusters.push_back(std::move(cluster));
  return matchAnswer(raised, clusters);
}

} // namespace cermet
