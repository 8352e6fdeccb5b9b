// add_rms_norm, a norm of a residual stream:
//
//   sum    = x + residual
//   result = rms_norm(sum, weight)
//
// The sum is the second result, whoever else reads it. x and residual keep their own types where one was cast up to
// meet the other (autocast). A rope's last addition is no residual stream, and a bias is no residual: an operand that
// is broadcast keeps the sum out of the norm. A norm of the sum in other rows ends with the reshape back to the sum's.
#include "ir/dialect/Ops.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Finder.h"
#include "patterns/fusions/Rotation.h"
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {

static Attempt match(Operation* anchor) {
  auto norm = cast<RmsNormOp>(anchor);
  AddOp add;
  for (Value value : reshapedFrom(norm.getX()))
    if ((add = value.getDefiningOp<AddOp>()))
      break;
  if (!add || endsRope(add))
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
  Value result = norm.getResult();
  if (!sameShape(result, add)) {
    Operation* reshape = onlyReshape(result);
    if (!reshape || !sameShape(reshape->getResult(0), add))
      return Miss{norm, fmt::format("the sum has shape {}, its norm {}, expected one shape", shapeText(add),
                                    shapeText(result))};
    match.inner.insert(norm);
    result = reshape->getResult(0);
  }
  Rewrite rewrite{{x, residual, norm.getWeight()}, {result, add.getResult()}, {}};
  for (NamedAttribute attribute : norm->getAttrDictionary())
    rewrite.attributes.push_back(attribute);
  match.rewrites.push_back(std::move(rewrite));
  return match;
}

Finder addRmsNorm() {
  static const llvm::StringRef anchors[] = {RmsNormOp::getOperationName()};
  static const llvm::StringRef operands[] = {"x", "residual", "weight"}, results[] = {"y", "sum"};
  return {"add_rms_norm", anchors, NamedAnswer{operands, results, match}};
}

} // namespace cermet
