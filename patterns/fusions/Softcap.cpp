// softcap, the bound on logits of Gemma 2 and its kin:
//
//   result = cap * tanh(x / cap)
//
// in x's type throughout; the product in either order, reshapes anywhere but at its ends.
#include "ir/dialect/Ops.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Finder.h"
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {

static Attempt match(Operation* anchor) {
  auto quotient = anchor->getOperand(0).getDefiningOp<DivOp>();
  auto divisor = quotient ? constantValue(quotient.getRhs()) : std::nullopt;
  if (!divisor)
    return {};
  Match match;
  match.inner.insert(quotient);
  match.inner.insert(anchor);
  Value bounded = anchor->getResult(0);
  while (Operation* reshape = onlyReshape(bounded)) {
    match.inner.insert(reshape);
    bounded = reshape->getResult(0);
  }
  for (Operation* user : bounded.getUsers()) {
    if (isa<CastOp>(user) && llvm::any_of(user->getUsers(), [](Operation* reader) { return isa<MulOp>(reader); }))
      return Miss{*user->user_begin(), fmt::format("the tanh is computed in {} and scaled in {}, expected one type",
                                                   elementText(bounded), elementText(user->getResult(0)))};
    auto product = dyn_cast<MulOp>(user);
    auto factor = product ? constantValue(product->getOperand(product.getLhs() == bounded ? 1 : 0)) : std::nullopt;
    if (!factor)
      continue;
    if (*factor != *divisor)
      return Miss{product, fmt::format("x is divided by {} and the tanh multiplied by {}, expected one number",
                                       numberText(*divisor), numberText(*factor))};
    Value x = inShapeOf(product, quotient.getLhs());
    if (!x)
      return Miss{product, fmt::format("x has shape {}, the result {}, expected one shape",
                                       shapeText(quotient.getLhs()), shapeText(product))};
    Builder builder(anchor->getContext());
    match.rewrites.push_back(
        {{x}, {product.getResult()}, {builder.getNamedAttr("cap", builder.getF64FloatAttr(*factor))}});
    return match;
  }
  return {};
}

Finder softcap() {
  static const llvm::StringRef anchors[] = {TanhOp::getOperationName()};
  static const llvm::StringRef operands[] = {"x"}, results[] = {"y"};
  return {"softcap", anchors, NamedAnswer{operands, results, match}};
}

} // namespace cermet
