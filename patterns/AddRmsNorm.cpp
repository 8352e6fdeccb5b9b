// add_rms_norm, a norm of a residual stream:
//
//   sum    = x + residual
//   result = rms_norm(sum, weight)
//
// The sum is the second result, whoever else reads it. x and residual keep their own types where one was cast up to
// meet the other (autocast). A bias is no residual: an operand that is broadcast keeps the sum out of the norm.
#include "ir/Ops.h"
#include "patterns/Dataflow.h"
#include "patterns/Pattern.h"

using namespace mlir;
using namespace cermet::ir;

namespace cermet {

static Attempt match(Operation* anchor) {
  auto norm = cast<RmsNormOp>(anchor);
  auto add = norm.getX().getDefiningOp<AddOp>();
  if (!add)
    return {};
  Match match;
  Value x = add.getLhs(), residual = add.getRhs();
  for (Value* side : {&x, &residual}) {
    if (constantValue(*side) || side->getDefiningOp<BroadcastOp>())
      return {};
    Value other = side == &x ? residual : x;
    Value narrow = widenedFrom(*side);
    if (narrow && promoted(elementType(narrow), elementType(other)) == elementType(add)) {
      match.entry.insert(side->getDefiningOp());
      *side = narrow;
    }
  }
  Rewrite rewrite{{x, residual, norm.getWeight()}, {norm.getResult(), add.getResult()}, {}};
  for (NamedAttribute attribute : norm->getAttrDictionary())
    rewrite.attributes.push_back(attribute);
  match.rewrites.push_back(std::move(rewrite));
  return match;
}

Pattern addRmsNorm() {
  static const llvm::StringRef operands[] = {"x", "residual", "weight"}, results[] = {"y", "sum"};
  return {"add_rms_norm", RmsNormOp::getOperationName(), operands, results, match};
}

} // namespace cermet
