#include "ir/dialect/Body.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;

namespace cermet::ir {
namespace {

// The sizes of a body's symbols.
class Sizes {
public:
  // Learns them from what is given for an argument of the type. False where it does not fit.
  bool bind(Type type, Type given) {
    auto own = dyn_cast<RankedTensorType>(type), other = dyn_cast<RankedTensorType>(given);
    if (!own || !other || own.getElementType() != other.getElementType() || own.getRank() != other.getRank())
      return false;
    for (auto [from, to] : llvm::zip_equal(dimensions(own), dimensions(other)))
      if (!((from.isSymbol() ? known.try_emplace(from.symbol, to).first->second : from) == to))
        return false;
    return true;
  }

  Type operator()(Type type) const {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      return type;
    Dimensions shape = dimensions(tensor);
    for (Dimension& dimension : shape)
      if (auto size = known.find(dimension.symbol); dimension.isSymbol() && size != known.end())
        dimension = size->second;
    return tensorType(shape, tensor.getElementType());
  }

private:
  llvm::DenseMap<StringAttr, Dimension> known;
};

Sizes sizesFor(func::FuncOp body, ValueRange operands) {
  Sizes sizes;
  for (auto [type, operand] : llvm::zip_equal(body.getArgumentTypes(), operands))
    sizes.bind(type, operand.getType());
  return sizes;
}

} // namespace

func::FuncOp bodyOf(Operation* op) {
  auto name = op->getAttrOfType<FlatSymbolRefAttr>(kBody);
  return name ? SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, name) : func::FuncOp();
}

SmallVector<Value> inlineBody(Operation* op, ValueRange operands, OpBuilder& builder, Location location) {
  func::FuncOp body = bodyOf(op);
  const Sizes sizes = sizesFor(body, operands);
  IRMapping mapping;
  mapping.map(body.getArguments(), operands);
  Block& block = body.getBody().front();
  for (Operation& original : block.without_terminator()) {
    Operation* copy = builder.clone(original, mapping);
    copy->setLoc(location);
    for (OpResult result : copy->getResults())
      result.setType(sizes(result.getType()));
    auto fused = dyn_cast<DecomposableOpInterface>(copy);
    if (!fused)
      continue;
    OpBuilder before(copy);
    mapping.map(original.getResults(), fused.decompose(before));
    copy->erase();
  }
  return llvm::map_to_vector(block.getTerminator()->getOperands(),
                             [&](Value result) { return mapping.lookup(result); });
}

LogicalResult verifyBody(Operation* op) {
  Attribute name = op->getAttr(kBody);
  if (!name)
    return success();
  auto opaque = dyn_cast<OpaqueOp>(op);
  if (!opaque || opaque.getEffect() != "pure")
    return op->emitOpError() << "has cermet.body, expected it on a pure cermet.opaque only";
  func::FuncOp body = bodyOf(op);
  if (!body || !body.isPrivate())
    return op->emitOpError() << "cermet.body is " << name << ", expected the name of a private func.func of the module";
  Sizes sizes;
  bool fits = body.getNumArguments() == op->getNumOperands() && body.getNumResults() == op->getNumResults();
  for (size_t i = 0; fits && i < op->getNumOperands(); ++i)
    fits = sizes.bind(body.getArgumentTypes()[i], op->getOperand(i).getType());
  for (size_t i = 0; fits && i < op->getNumResults(); ++i)
    fits = sizes(body.getResultTypes()[i]) == op->getResult(i).getType();
  if (!fits)
    return op->emitOpError() << "has operands and results of other types than its body @" << body.getName()
                             << ", expected those of " << body.getFunctionType()
                             << ", where each symbol is one size throughout";
  return success();
}

} // namespace cermet::ir
