// glu, the gated activation of a feed-forward block:
//
//   result = activation(gate) * up          activation is silu, gelu or gelu_tanh
//
// in either order, gate and up of one type and shape, whatever reshapes that keep rows stand between; the activation is
// rounded to that type before the product. Where gate and up are the halves of one tensor's last dimension, in either
// order, it is read as it is: packed_glu.
//
// An activation that is written out, x * sigmoid(x) or gelu with its erf or tanh, rounds at each of its steps and is
// not the operation that rounds once: it stays as it is.
#include "ir/dialect/Ops.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Names.h"
#include "patterns/matching/Finder.h"
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {

// The earliest product that reads `value`, in these rows or others; `reshapes` are what leads to it.
static Operation* productOf(Value value, llvm::SmallVector<Operation*>& reshapes) {
  Operation* product = nullptr;
  for (Operation* user : value.getUsers()) {
    llvm::SmallVector<Operation*> passed;
    Operation* found = isa<MulOp>(user) ? user : keepsRows(user) ? productOf(user->getResult(0), passed) : nullptr;
    if (found && (!product || found->isBeforeInBlock(product))) {
      product = found;
      reshapes = std::move(passed);
      if (found != user)
        reshapes.insert(reshapes.begin(), user);
    }
  }
  return product;
}
static Operation* productOf(Value value) {
  llvm::SmallVector<Operation*> reshapes;
  return productOf(value, reshapes);
}

static Value otherFactor(Operation* product, Value factor) {
  return product->getOperand(product->getOperand(0) == factor ? 1 : 0);
}

// The tensor whose last dimension is `first` and then `second`, each of them half of it.
static Value packedFrom(Value first, Value second) {
  auto low = first.getDefiningOp<SliceOp>(), high = second.getDefiningOp<SliceOp>();
  if (!low || !high || !sameValue(low.getOperand(), high.getOperand()) || low.getType() != high.getType())
    return {};
  Value packed = low.getOperand();
  Dimensions whole = dimensions(cast<RankedTensorType>(packed.getType()));
  Dimensions half = dimensions(cast<RankedTensorType>(low.getType()));
  int64_t columns = half.back().size;
  bool halves = !half.back().isSymbol() && whole.back().size == 2 * columns && low.getStarts().back() == 0 &&
                high.getStarts().back() == columns;
  bool rows = ArrayRef(whole).drop_back() == ArrayRef(half).drop_back();
  return halves && rows ? packed : Value();
}

// `x * sigmoid(x)` or gelu in its steps, met by another value: the product, for a message.
static Attempt writtenOut(Operation* anchor) {
  Value value = anchor->getResult(0);
  Operation* activation = nullptr;
  if (isa<SigmoidOp>(anchor)) {
    activation = productOf(value);
    if (!activation || !sameValue(otherFactor(activation, value), anchor->getOperand(0)))
      return {};
  } else {
    // x / 2 * (1 + ...)
    auto sum = value.hasOneUse() ? dyn_cast<AddOp>(*value.user_begin()) : AddOp();
    if (!sum || constantValue(sum->getOperand(sum.getLhs() == value ? 1 : 0)) != 1.0)
      return {};
    activation = productOf(sum.getResult());
    if (!activation)
      return {};
    auto half = otherFactor(activation, sum.getResult()).getDefiningOp<MulOp>();
    if (!half || (constantValue(half.getLhs()) != 0.5 && constantValue(half.getRhs()) != 0.5))
      return {};
  }
  Operation* product = productOf(activation->getResult(0));
  if (!product || constantValue(otherFactor(product, activation->getResult(0))))
    return {};
  return Miss{product, fmt::format("the activation is written out with `{}` and rounded at each step, expected {} in "
                                   "one operation",
                                   nameOf(anchor), isa<SigmoidOp>(anchor) ? "silu" : "gelu")};
}

static llvm::StringRef activationOf(Operation* anchor) {
  return isa<SiluOp>(anchor) ? "silu" : isa<GeluOp>(anchor) ? "gelu" : "gelu_tanh";
}

static Attempt match(Operation* anchor) {
  if (isa<SigmoidOp, ErfOp, TanhOp>(anchor))
    return writtenOut(anchor);
  Value gate = anchor->getOperand(0), activation = anchor->getResult(0);
  Match match;
  match.inner.insert(anchor);
  llvm::SmallVector<Operation*> reshapes;
  Operation* product = productOf(activation, reshapes);
  if (!product) {
    for (Operation* user : activation.getUsers()) {
      if (writes(user, activation))
        return Miss{user, writtenText(activation, user)};
      Operation* after = isa<CastOp>(user) ? productOf(user->getResult(0)) : nullptr;
      if (after)
        return Miss{after, fmt::format("the activation is computed in {} and meets up in {}, expected one type",
                                       elementText(activation), elementText(user->getResult(0)))};
    }
    return {};
  }
  match.inner.insert(reshapes.begin(), reshapes.end());
  Value up = otherFactor(product, reshapes.empty() ? activation : reshapes.back()->getResult(0));
  if (sameRows(up, activation))
    return Miss{product, "the activation is multiplied by itself, expected by another value"};
  if (constantValue(up))
    return {}; // a scaled activation
  if (auto broadcast = up.getDefiningOp<BroadcastOp>())
    return Miss{product, fmt::format("up has shape {}, expected the gate's {}", shapeText(broadcast.getOperand()),
                                     shapeText(gate))};

  // The ends have the product's shape, or that of what it is reshaped to.
  Value result = product->getResult(0);
  Operation* reshape = onlyReshape(result);
  if (reshape && !inShapeOf(result, gate)) {
    match.inner.insert(product);
    result = reshape->getResult(0);
  }
  Value gateThere = inShapeOf(result, gate), upThere = inShapeOf(result, up);
  if (!gateThere || !upThere)
    return Miss{product, fmt::format("gate has shape {} and up {}, expected one shape", shapeText(gate),
                                     shapeText(inShapeOf(gate, up) ? product->getResult(0) : up))};

  Rewrite rewrite{{gateThere, upThere}, {result}, {}};
  Builder builder(anchor->getContext());
  if (!isa<SiluOp>(anchor))
    rewrite.attributes.push_back(builder.getNamedAttr("activation", builder.getStringAttr(activationOf(anchor))));
  static const llvm::StringRef packedRoles[] = {"packed"};
  Value gateFirst = packedFrom(gateThere, upThere), upFirst = packedFrom(upThere, gateThere);
  if (Value packed = gateFirst ? gateFirst : upFirst) {
    match.entry.insert(gateThere.getDefiningOp());
    match.entry.insert(upThere.getDefiningOp());
    rewrite.operands = {packed};
    rewrite.operation = "packed_glu";
    rewrite.roles = packedRoles;
    if (upFirst)
      rewrite.attributes.push_back(builder.getNamedAttr("up_first", builder.getUnitAttr()));
  }
  match.rewrites.push_back(std::move(rewrite));
  return match;
}

Finder glu() {
  static const llvm::StringRef anchors[] = {SiluOp::getOperationName(),     GeluOp::getOperationName(),
                                            GeluTanhOp::getOperationName(), SigmoidOp::getOperationName(),
                                            ErfOp::getOperationName(),      TanhOp::getOperationName()};
  static const llvm::StringRef operands[] = {"gate", "up"}, results[] = {"y"};
  return {"glu", anchors, NamedAnswer{operands, results, match}};
}

} // namespace cermet
