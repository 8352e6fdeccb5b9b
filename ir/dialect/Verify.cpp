// What each operation that computes demands of its operands, beyond their types' kinds; the operations of shape are in
// ir/dialect/VerifyShape.cpp.
#include "ir/dialect/Verify.h"
#include <cmath>

using namespace mlir;

namespace cermet::ir {

std::string shapeTextOf(Value value) {
  return shapeText(shapeOf(value));
}

Type elementOf(Value value) {
  return typeOf(value).getElementType();
}

LogicalResult sameElement(Operation* op, StringRef name, Value value, Type expected, StringRef of) {
  if (elementOf(value) == expected)
    return success();
  return op->emitOpError() << name << " has element type " << elementOf(value) << ", expected " << expected << " ("
                           << of << ")";
}

LogicalResult sameShape(Operation* op, StringRef name, Value value, ArrayRef<Dimension> expected, StringRef of) {
  if (ArrayRef(shapeOf(value)) == expected)
    return success();
  return op->emitOpError() << name << " has shape " << shapeTextOf(value) << ", expected " << shapeText(expected)
                           << " (" << of << ")";
}

LogicalResult hasRows(Operation* op, StringRef name, Value value) {
  if (typeOf(value).getRank() > 0)
    return success();
  return op->emitOpError() << name << " has rank 0, expected a last dimension to work over";
}

//===--- Elementwise -------------------------------------------------------------------------------------------------//

LogicalResult CompareOp::verify() {
  if (!llvm::is_contained({"eq", "ne", "lt", "le", "gt", "ge"}, getPredicate()))
    return emitOpError() << "predicate is \"" << getPredicate()
                         << "\", expected \"eq\", \"ne\", \"lt\", \"le\", \"gt\" or \"ge\"";
  return sameShape(*this, "result", getResult(), shapeOf(getLhs()), "lhs's");
}

LogicalResult SelectOp::verify() {
  return sameShape(*this, "condition", getCondition(), shapeOf(getResult()), "result's");
}

LogicalResult CastOp::verify() {
  return sameShape(*this, "result", getResult(), shapeOf(getOperand()), "operand's");
}

//===--- Reductions --------------------------------------------------------------------------------------------------//

static LogicalResult verifyReduction(Operation* op, Value operand, Value result) {
  if (failed(hasRows(op, "operand", operand)) ||
      failed(sameElement(op, "result", result, elementOf(operand), "operand's")))
    return failure();
  return sameShape(op, "result", result, dimensions(rowType(typeOf(operand))), "operand's with the last dimension 1");
}

LogicalResult ReduceSumOp::verify() {
  return verifyReduction(*this, getOperand(), getResult());
}

LogicalResult ReduceMaxOp::verify() {
  return verifyReduction(*this, getOperand(), getResult());
}

LogicalResult ReduceMinOp::verify() {
  return verifyReduction(*this, getOperand(), getResult());
}

LogicalResult CumsumOp::verify() {
  return hasRows(*this, "operand", getOperand());
}

LogicalResult SumRowsOp::verify() {
  if (failed(hasRows(*this, "operand", getOperand())) ||
      failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  return sameShape(*this, "result", getResult(), shapeOf(getOperand()).back(), "operand's last dimension");
}

//===--- What other code runs ----------------------------------------------------------------------------------------//

LogicalResult MatmulOp::verify() {
  Dimensions lhs = shapeOf(getLhs()), rhs = shapeOf(getRhs());
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

//===--- Fused regions -----------------------------------------------------------------------------------------------//

static LogicalResult verifyNorm(Operation* op, Value x, Value weight, Value result, double eps) {
  if (failed(hasRows(op, "x", x)))
    return failure();
  Dimension last = shapeOf(x).back();
  if (last.isSymbol())
    return op->emitOpError() << "x has shape " << shapeTextOf(x) << ", expected a static last dimension";
  Dimensions weightShape = shapeOf(weight);
  if (weightShape.size() != 1)
    return op->emitOpError() << "weight has shape " << shapeText(weightShape) << ", expected [" << shapeText(last)
                             << "]"
                             << " (last dimension of x)";
  if (!(weightShape[0] == last))
    return op->emitOpError() << "weight has " << shapeText(weightShape[0]) << " elements, expected " << shapeText(last)
                             << " (last dimension of x)";
  if (!(eps >= 0) || std::isinf(eps))
    return op->emitOpError() << "eps is " << eps << ", expected a finite number that is not negative";
  return sameShape(op, "result", result, shapeOf(x), "x's");
}

LogicalResult RmsNormOp::verify() {
  return verifyNorm(*this, getX(), getWeight(), getResult(), getEps().convertToDouble());
}

LogicalResult AddRmsNormOp::verify() {
  if (failed(sameShape(*this, "residual", getResidual(), shapeOf(getX()), "x's")) ||
      failed(sameShape(*this, "sum", getSum(), shapeOf(getX()), "x's")) ||
      failed(sameElement(*this, "sum", getSum(), promoted(elementOf(getX()), elementOf(getResidual())),
                         "promoted from x's and residual's")))
    return failure();
  return verifyNorm(*this, getSum(), getWeight(), getResult(), getEps().convertToDouble());
}

static LogicalResult verifyActivation(Operation* op, StringRef activation) {
  if (llvm::is_contained({"silu", "gelu", "gelu_tanh"}, activation))
    return success();
  return op->emitOpError() << "activation is \"" << activation << "\", expected \"silu\", \"gelu\" or \"gelu_tanh\"";
}

LogicalResult GluOp::verify() {
  return verifyActivation(*this, getActivation());
}

LogicalResult PackedGluOp::verify() {
  if (failed(hasRows(*this, "packed", getPacked())) || failed(verifyActivation(*this, getActivation())) ||
      failed(sameElement(*this, "result", getResult(), elementOf(getPacked()), "packed's")))
    return failure();
  Dimensions half = shapeOf(getPacked());
  if (half.back().isSymbol() || half.back().size % 2 != 0)
    return emitOpError() << "packed has shape " << shapeText(half)
                         << ", expected a static last dimension that two halves share";
  half.back().size /= 2;
  return sameShape(*this, "result", getResult(), half, "packed's with half the last dimension");
}

static LogicalResult finite(Operation* op, StringRef name, const APFloat& value, double least, double most) {
  const double number = value.convertToDouble();
  if (number >= least && number <= most && std::isfinite(number))
    return success();
  InFlightDiagnostic message = op->emitOpError() << name << " is " << number << ", expected a finite number";
  return std::isfinite(most) ? message << " from " << least << " to " << most : message << " that is not negative";
}

LogicalResult LinearCrossEntropyOp::verify() {
  Dimensions hidden = shapeOf(getHidden()), weight = shapeOf(getWeight());
  if (hidden.size() < 2 || hidden.back().isSymbol())
    return emitOpError() << "hidden has shape " << shapeText(hidden)
                         << ", expected rows and a static last dimension behind them";
  if (weight.size() != 2 || weight[0].isSymbol() || !(weight[1] == hidden.back()))
    return emitOpError() << "weight has shape " << shapeText(weight) << ", expected a static number of columns and "
                         << shapeText(hidden.back()) << " (last dimension of hidden)";
  ArrayRef rows = ArrayRef(hidden).drop_back();
  if (failed(sameElement(*this, "weight", getWeight(), elementOf(getHidden()), "hidden's")) ||
      failed(sameShape(*this, "labels", getLabels(), rows, "hidden's without the last dimension")) ||
      (getBias() && (failed(sameElement(*this, "bias", getBias(), elementOf(getHidden()), "hidden's")) ||
                     failed(sameShape(*this, "bias", getBias(), weight[0], "the weight's rows")))) ||
      failed(finite(*this, "label_smoothing", getLabelSmoothing(), 0, 1)) ||
      failed(finite(*this, "softcap", getSoftcap(), 0, HUGE_VAL)) ||
      failed(finite(*this, "z_loss", getZLoss(), 0, HUGE_VAL)))
    return failure();
  Type wide = wideType(typeOf(getHidden())).getElementType();
  if (!llvm::is_contained({"mean", "sum", "none"}, getReduction()))
    return emitOpError() << "reduction is \"" << getReduction() << "\", expected \"mean\", \"sum\" or \"none\"";
  if (failed(sameElement(*this, "result", getResult(), wide, "in which the loss is computed")))
    return failure();
  return getReduction() == "none" ? sameShape(*this, "result", getResult(), rows, "the labels'")
                                  : sameShape(*this, "result", getResult(), {}, "one number");
}

} // namespace cermet::ir
