// What each operation demands of its operands, beyond their types' kinds.
#include "ir/Ops.h"
#include <cmath>

using namespace mlir;
using namespace cermet::ir;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}
static std::string shapeOf(Value value) {
  return shapeText(dimensions(typeOf(value)));
}
static Type elementOf(Value value) {
  return typeOf(value).getElementType();
}

static LogicalResult sameElement(Operation* op, StringRef name, Value value, Type expected, StringRef of) {
  if (elementOf(value) == expected)
    return success();
  return op->emitOpError() << name << " has element type " << elementOf(value) << ", expected " << expected << " ("
                           << of << ")";
}

static LogicalResult sameShape(Operation* op, StringRef name, Value value, ArrayRef<Dimension> expected, StringRef of) {
  if (ArrayRef(dimensions(typeOf(value))) == expected)
    return success();
  return op->emitOpError() << name << " has shape " << shapeOf(value) << ", expected " << shapeText(expected) << " ("
                           << of << ")";
}

static LogicalResult hasRows(Operation* op, StringRef name, Value value) {
  if (typeOf(value).getRank() > 0)
    return success();
  return op->emitOpError() << name << " has rank 0, expected a last dimension to work over";
}

LogicalResult CastOp::verify() {
  return sameShape(*this, "result", getResult(), dimensions(typeOf(getOperand())), "operand's");
}

LogicalResult BroadcastOp::verify() {
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  Dimensions from = dimensions(typeOf(getOperand())), to = dimensions(typeOf(getResult()));
  bool fits = from.size() <= to.size();
  for (size_t i = 1; fits && i <= from.size(); ++i) {
    const Dimension& dimension = from[from.size() - i];
    fits = dimension.isOne() || dimension == to[to.size() - i];
  }
  if (!fits)
    return emitOpError() << "operand has shape " << shapeText(from)
                         << ", expected one that extends to the result's shape " << shapeText(to)
                         << ": dimensions aligned at the right, each 1 or equal";
  return success();
}

LogicalResult ReshapeOp::verify() {
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  RankedTensorType from = typeOf(getOperand()), to = typeOf(getResult());
  if (from.hasStaticShape() && to.hasStaticShape() && from.getNumElements() != to.getNumElements())
    return emitOpError() << "result has " << to.getNumElements() << " elements " << shapeOf(getResult())
                         << ", expected the operand's " << from.getNumElements() << " " << shapeOf(getOperand());
  return success();
}

LogicalResult ReduceSumOp::verify() {
  if (failed(hasRows(*this, "operand", getOperand())) ||
      failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  return sameShape(*this, "result", getResult(), dimensions(rowType(typeOf(getOperand()))),
                   "operand's with the last dimension 1");
}

LogicalResult SumRowsOp::verify() {
  if (failed(hasRows(*this, "operand", getOperand())) ||
      failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  return sameShape(*this, "result", getResult(), dimensions(typeOf(getOperand())).back(), "operand's last dimension");
}

LogicalResult MatmulOp::verify() {
  Dimensions lhs = dimensions(typeOf(getLhs())), rhs = dimensions(typeOf(getRhs()));
  if (failed(hasRows(*this, "lhs", getLhs())) || failed(hasRows(*this, "rhs", getRhs())) ||
      failed(sameElement(*this, "rhs", getRhs(), elementOf(getLhs()), "lhs's")) ||
      failed(sameElement(*this, "result", getResult(), elementOf(getLhs()), "lhs's")))
    return failure();
  if (getTransposeLhs()) {
    if (getTransposeRhs())
      return emitOpError() << "has transpose_lhs and transpose_rhs, expected at most one";
    if (ArrayRef(lhs).drop_back() != ArrayRef(rhs).drop_back())
      return emitOpError() << "rhs has shape " << shapeText(rhs) << ", expected lhs's leading dimensions, lhs is "
                           << shapeText(lhs);
    return sameShape(*this, "result", getResult(), {lhs.back(), rhs.back()}, "last dimensions of lhs and rhs");
  }
  if (rhs.size() != 2)
    return emitOpError() << "rhs has rank " << rhs.size() << ", expected 2";
  int inner = getTransposeRhs() ? 1 : 0;
  if (!(lhs.back() == rhs[inner]))
    return emitOpError() << "rhs has shape " << shapeText(rhs) << ", expected dimension " << inner
                         << " to be lhs's last, lhs is " << shapeText(lhs);
  Dimensions result = lhs;
  result.back() = rhs[1 - inner];
  return sameShape(*this, "result", getResult(), result, "lhs's rows, rhs's columns");
}

LogicalResult OpaqueOp::verify() {
  StringRef effect = getEffect();
  if (getTarget().empty())
    return emitOpError() << "target is empty, expected the importer's name for the operation";
  if (effect != "pure" && effect != "effectful" && effect != "write")
    return emitOpError() << "effect is \"" << effect << "\", expected \"pure\", \"effectful\" or \"write\"";
  int64_t versions = getVersions();
  if (effect != "write" && versions != 0)
    return emitOpError() << "versions is " << versions << " with effect \"" << effect << "\", expected 0 (only a write "
                         << "makes versions)";
  if (effect == "write" && (versions < 1 || versions > std::min(getNumOperands(), getNumResults())))
    return emitOpError() << "versions is " << versions << ", expected 1 to the smaller of " << getNumOperands()
                         << " operands and " << getNumResults() << " results";
  for (int64_t i = 0; i < versions; ++i)
    if (getResult(i).getType() != getOperand(i).getType())
      return emitOpError() << "result " << i << " has type " << getResult(i).getType() << ", expected "
                           << getOperand(i).getType() << " (a new version of operand " << i << ")";
  return success();
}

static LogicalResult verifyNorm(Operation* op, Value x, Value weight, Value result, double eps) {
  if (failed(hasRows(op, "x", x)))
    return failure();
  Dimension last = dimensions(typeOf(x)).back();
  if (last.isSymbol())
    return op->emitOpError() << "x has shape " << shapeOf(x) << ", expected a static last dimension";
  Dimensions weightShape = dimensions(typeOf(weight));
  if (weightShape.size() != 1)
    return op->emitOpError() << "weight has shape " << shapeText(weightShape) << ", expected [" << shapeText(last)
                             << "]"
                             << " (last dimension of x)";
  if (!(weightShape[0] == last))
    return op->emitOpError() << "weight has " << shapeText(weightShape[0]) << " elements, expected " << shapeText(last)
                             << " (last dimension of x)";
  if (!(eps >= 0) || std::isinf(eps))
    return op->emitOpError() << "eps is " << eps << ", expected a finite number that is not negative";
  return sameShape(op, "result", result, dimensions(typeOf(x)), "x's");
}

LogicalResult RmsNormOp::verify() {
  return verifyNorm(*this, getX(), getWeight(), getResult(), getEps().convertToDouble());
}

LogicalResult AddRmsNormOp::verify() {
  if (failed(sameShape(*this, "residual", getResidual(), dimensions(typeOf(getX())), "x's")) ||
      failed(sameShape(*this, "sum", getSum(), dimensions(typeOf(getX())), "x's")) ||
      failed(sameElement(*this, "sum", getSum(), promoted(elementOf(getX()), elementOf(getResidual())),
                         "promoted from x's and residual's")))
    return failure();
  return verifyNorm(*this, getSum(), getWeight(), getResult(), getEps().convertToDouble());
}

LogicalResult GluOp::verify() {
  if (getActivation() != "silu")
    return emitOpError() << "activation is \"" << getActivation() << "\", expected \"silu\"";
  return success();
}
