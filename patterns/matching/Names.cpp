#include "patterns/matching/Names.h"
#include "ir/text/Text.h"
#include "mlir/IR/Location.h"

using namespace mlir;

namespace cermet {

bool hasName(Operation* op) {
  return !ir::nodeName(op->getLoc()).empty();
}

static std::string nameOf(Location location, OperationName kind) {
  llvm::StringRef name = ir::nodeName(location);
  if (!name.empty())
    return name.str();
  unsigned line = ir::textLine(location);
  return kind.stripDialect().str() + (line ? " at line " + std::to_string(line) : "");
}

std::string nameOf(Operation* op) {
  return nameOf(op->getLoc(), op->getName());
}

std::string nameOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    llvm::StringRef name = ir::nodeName(argument.getLoc());
    return name.empty() ? "argument " + std::to_string(argument.getArgNumber()) : name.str();
  }
  auto result = cast<OpResult>(value);
  Operation* op = result.getOwner();
  if (op->getNumResults() == 1)
    return nameOf(op);
  // A text's locations hold one name each, so several come from locationOf.
  if (auto fused = dyn_cast<FusedLoc>(op->getLoc()); fused && fused.getLocations().size() == op->getNumResults())
    return nameOf(fused.getLocations()[result.getResultNumber()], op->getName());
  return nameOf(op) + "#" + std::to_string(result.getResultNumber());
}

Location locationOf(llvm::ArrayRef<Value> results) {
  llvm::SmallVector<Location> locations;
  for (Value result : results)
    locations.push_back(result.getLoc());
  return locations.size() == 1 ? locations.front() : FusedLoc::get(results.front().getContext(), locations);
}

} // namespace cermet
