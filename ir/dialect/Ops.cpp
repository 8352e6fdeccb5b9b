#include "ir/dialect/Ops.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Formula.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cermet::ir;

#include "ir/Dialect.cpp.inc"
#include "ir/Interfaces.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/Attributes.cpp.inc"
#define GET_OP_CLASSES
#include "ir/Ops.cpp.inc"

void CermetDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/Attributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/Ops.cpp.inc"
      >();
}

LogicalResult SymbolsAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                          llvm::function_ref<InFlightDiagnostic()> emitError) const {
  size_t dynamic = llvm::count_if(shape, ShapedType::isDynamic);
  if (dynamic != getNames().size())
    return emitError() << "#cermet.symbols names " << getNames().size() << " dimensions, the tensor type has "
                       << dynamic << " that are '?': expected one name for each, left to right";
  for (StringAttr name : getNames())
    if (name.empty())
      return emitError() << "#cermet.symbols has an empty name: expected one such as \"r0\"";
  return success();
}

bool cermet::ir::isElementwise(Operation* op) {
  return isa<AddOp, SubOp, MulOp, DivOp, PowOp, MaxOp, MinOp, NegOp, AbsOp, ExpOp, LogOp, SqrtOp, RsqrtOp, TanhOp,
             ErfOp, ReluOp, SigmoidOp, SoftplusOp, SiluOp, GeluOp, GeluTanhOp, CompareOp, SelectOp, CastOp>(op);
}

bool cermet::ir::isReduction(Operation* op) {
  return isa<ReduceSumOp, ReduceMaxOp, ReduceMinOp>(op);
}

//===--- Folds: what changes no bit ----------------------------------------------------------------------------------//

OpFoldResult CastOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  auto inner = getOperand().getDefiningOp<CastOp>();
  if (!inner)
    return {};
  auto source = cast<RankedTensorType>(inner.getOperand().getType()).getElementType();
  auto middle = cast<RankedTensorType>(inner.getType()).getElementType();
  if (!holds(middle, source))
    return {};
  getOperandMutable().assign(inner.getOperand());
  return getResult();
}

namespace {
// A constant of another type, where both types hold the number.
struct CastOfConstant : OpRewritePattern<CastOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CastOp op, PatternRewriter& rewriter) const override {
    auto constant = op.getOperand().getDefiningOp<ConstantOp>();
    if (!constant)
      return failure();
    double value = constant.getValue().convertToDouble();
    for (Type type : {constant.getType(), op.getType()})
      if (roundTo(getElementTypeOrSelf(type), value) != value)
        return failure();
    rewriter.replaceOpWithNewOp<ConstantOp>(op, op.getType(), constant.getValueAttr());
    return success();
  }
};
} // namespace

void CastOp::getCanonicalizationPatterns(RewritePatternSet& patterns, MLIRContext* context) {
  patterns.add<CastOfConstant>(context);
}

OpFoldResult BroadcastOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  if (auto inner = getOperand().getDefiningOp<BroadcastOp>()) {
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  return {};
}

// A symbol that stands for a product of others means something where those are: a value without it cannot tell it.
static bool makesSymbol(RankedTensorType from, RankedTensorType to) {
  const Dimensions known = dimensions(from);
  return llvm::any_of(dimensions(to), [&](const Dimension& dimension) {
    return dimension.isSymbol() && !llvm::is_contained(known, dimension);
  });
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  auto inner = getOperand().getDefiningOp<ReshapeOp>();
  if (inner && (makesSymbol(getOperand().getType(), getType()) || !makesSymbol(inner.getOperand().getType(), getType()))) {
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  return {};
}

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  if (llvm::is_sorted(getPermutation()))
    return getOperand();
  auto inner = getOperand().getDefiningOp<TransposeOp>();
  if (!inner)
    return {};
  SmallVector<int64_t> permutation;
  for (int64_t from : getPermutation())
    permutation.push_back(inner.getPermutation()[from]);
  getOperandMutable().assign(inner.getOperand());
  setPermutation(permutation);
  return getResult();
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType()) // whole: the verifier leaves no start but 0
    return getOperand();
  auto inner = getOperand().getDefiningOp<SliceOp>();
  if (!inner || !inner->hasOneUse()) // what several read in part is a value of its own: a head of packed ones
    return {};
  // What is compared when run stays: the inner slice's ends, where its operand has a symbol.
  Dimensions first = dimensions(cast<RankedTensorType>(inner.getOperand().getType()));
  Dimensions middle = dimensions(cast<RankedTensorType>(inner.getType()));
  SmallVector<int64_t> starts;
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i].isSymbol() && !(first[i] == middle[i]))
      return {};
    starts.push_back(getStarts()[i] + inner.getStarts()[i]);
  }
  getOperandMutable().assign(inner.getOperand());
  setStarts(starts);
  return getResult();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getNumOperands() == 1 ? getOperand(0) : Value();
}

OpFoldResult ColumnsOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType() && llvm::equal(getMap(), llvm::seq<int64_t>(0, getMap().size())))
    return getOperand();
  auto inner = getOperand().getDefiningOp<ColumnsOp>();
  if (!inner)
    return {};
  SmallVector<int64_t> map;
  for (int64_t column : getMap())
    map.push_back(inner.getMap()[column]);
  getOperandMutable().assign(inner.getOperand());
  setMap(map);
  return getResult();
}

//===--- Effects -----------------------------------------------------------------------------------------------------//

void OpaqueOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>& effects) {
  if (getEffect() == "pure")
    return;
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}
