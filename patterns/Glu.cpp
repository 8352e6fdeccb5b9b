// glu, the gated activation of a feed-forward block:
//
//   result = silu(gate) * up
//
// in either order, gate and up of one type and shape; the activation is rounded to that type before the product.
#include "ir/Ops.h"
#include "patterns/Dataflow.h"
#include "patterns/Names.h"
#include "patterns/Pattern.h"
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {

// The earliest product that reads `value`.
static Operation* productOf(Value value) {
  Operation* product = nullptr;
  for (Operation* user : value.getUsers())
    if (isa<MulOp>(user) && (!product || user->isBeforeInBlock(product)))
      product = user;
  return product;
}

static Attempt match(Operation* anchor) {
  auto silu = cast<SiluOp>(anchor);
  Value activation = silu.getResult();
  Operation* product = productOf(activation);
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
  Value up = product->getOperand(product->getOperand(0) == activation ? 1 : 0);
  if (up == activation)
    return Miss{product, "the activation is multiplied by itself, expected by another value"};
  if (constantValue(up))
    return {}; // a scaled activation
  if (auto broadcast = up.getDefiningOp<BroadcastOp>())
    return Miss{product, fmt::format("up has shape {}, expected the gate's {}", shapeText(broadcast.getOperand()),
                                     shapeText(silu.getOperand()))};
  Match match;
  match.inner.insert(silu);
  match.rewrites.push_back({{silu.getOperand(), up}, {product->getResult(0)}, {}});
  return match;
}

Pattern glu() {
  static const llvm::StringRef operands[] = {"gate", "up"}, results[] = {"y"};
  return {"glu", SiluOp::getOperationName(), operands, results, match};
}

} // namespace cermet
