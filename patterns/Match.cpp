#include "patterns/Match.h"
#include "patterns/Answer.h"

namespace cermet {

std::string match(mlir::func::FuncOp function, llvm::ArrayRef<Finder> finders) {
  RaiseResult raised = raise(function, finders);
  const NodeValues nodes(function);
  std::vector<Selection> selections;
  for (const Finder& finder : finders) {
    auto* select = std::get_if<SelectedAnswer>(&finder.answer);
    const auto anchors = finder.anchorsIn(function);
    if (!select || (anchors.empty() && !finder.anchors.empty()))
      continue;
    for (Selection& found : (*select)({function, nodes, anchors, selections, raised.nearMisses}))
      selections.push_back(std::move(found));
  }
  return matchAnswer(raised, selections);
}

} // namespace cermet
