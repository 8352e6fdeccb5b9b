#include "patterns/Match.h"
#include "ir/Text.h"
#include "mlir/IR/MLIRContext.h"
#include "patterns/Outline.h"

namespace cermet {

bool match(llvm::StringRef graphText, std::string& json, std::string& error) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  auto graph = ir::parseGraph(graphText, context, error);
  if (!graph)
    return false;
  json = matchAnswer(raise(ir::graphFunction(*graph)));
  return true;
}

} // namespace cermet
