#include "ir/gradient/Joined.h"

using namespace mlir;

namespace cermet::ir {

bool join(Joined& joined, Value cotangent) {
  auto concat = cotangent.getDefiningOp<ConcatOp>();
  if (!concat || (!joined.parts.empty() && int64_t(concat.getDim()) != joined.dim))
    return false;
  joined.dim = concat.getDim();
  joined.type = typeOf(cotangent);
  auto sizeOf = [&](Value part) { return typeOf(part).getDimSize(joined.dim); };
  SmallVector<std::pair<int64_t, Value>> parts;
  int64_t start = 0;
  for (Value part : concat.getOperands()) {
    auto next = joined.parts.lower_bound(start);
    auto constant = part.getDefiningOp<ConstantOp>();
    if (!constant || !constant.getValue().isZero()) {
      if ((next != joined.parts.end() && next->first < start + sizeOf(part)) ||
          (next != joined.parts.begin() && std::prev(next)->first + sizeOf(std::prev(next)->second) > start))
        return false;
      parts.push_back({start, part});
    }
    start += sizeOf(part);
  }
  joined.parts.insert(parts.begin(), parts.end());
  return true;
}

Value joinedValue(OpBuilder& builder, Location location, const Joined& joined) {
  Formula f(builder, location);
  SmallVector<Value> operands;
  int64_t end = 0;
  auto zerosUpTo = [&](int64_t start) {
    Dimensions gap = dimensions(joined.type);
    gap[joined.dim].size = start - end;
    if (start != end)
      operands.push_back(f.number(tensorType(gap, joined.type.getElementType()), 0));
  };
  for (auto [start, part] : joined.parts) {
    zerosUpTo(start);
    operands.push_back(part);
    end = start + typeOf(part).getDimSize(joined.dim);
  }
  zerosUpTo(joined.type.getDimSize(joined.dim));
  return f.concat(operands, joined.dim);
}

Value castParts(Formula& f, Value value, Type elementType) {
  auto concat = value.getDefiningOp<ConcatOp>();
  if (!concat)
    return f.cast(value, elementType);
  SmallVector<Value> parts;
  for (Value part : concat.getOperands())
    parts.push_back(f.cast(part, elementType));
  return f.concat(parts, concat.getDim());
}

} // namespace cermet::ir
