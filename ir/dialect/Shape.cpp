#include "ir/dialect/Shape.h"
#include "ir/dialect/Ops.h"

using namespace mlir;

namespace cermet::ir {

Dimensions dimensions(RankedTensorType type) {
  auto symbols = dyn_cast_or_null<SymbolsAttr>(type.getEncoding());
  Dimensions result;
  size_t next = 0;
  for (int64_t size : type.getShape()) {
    Dimension dimension{size, nullptr};
    if (dimension.isSymbol() && symbols && next < symbols.getNames().size())
      dimension.symbol = symbols.getNames()[next++];
    result.push_back(dimension);
  }
  return result;
}

RankedTensorType tensorType(ArrayRef<Dimension> dimensions, Type elementType) {
  SmallVector<int64_t> shape;
  SmallVector<StringAttr> names;
  for (const Dimension& dimension : dimensions) {
    shape.push_back(dimension.size);
    if (dimension.symbol)
      names.push_back(dimension.symbol);
  }
  Attribute encoding = names.empty() ? Attribute() : SymbolsAttr::get(elementType.getContext(), names);
  return RankedTensorType::get(shape, elementType, encoding);
}

std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

std::string shapeText(const Dimension& dimension) {
  if (dimension.symbol)
    return dimension.symbol.str();
  return dimension.isSymbol() ? "?" : std::to_string(dimension.size);
}

std::string shapeText(ArrayRef<Dimension> dimensions) {
  std::string text = "[";
  for (const Dimension& dimension : dimensions)
    text += (text.size() > 1 ? ", " : "") + shapeText(dimension);
  return text + "]";
}

RankedTensorType withElement(RankedTensorType type, Type elementType) {
  return RankedTensorType::get(type.getShape(), elementType, type.getEncoding());
}

RankedTensorType rowType(RankedTensorType type) {
  Dimensions result = dimensions(type);
  if (!result.empty())
    result.back() = Dimension{};
  return tensorType(result, type.getElementType());
}

RankedTensorType boolType(RankedTensorType type) {
  return withElement(type, IntegerType::get(type.getContext(), 1));
}

Dimensions permuted(ArrayRef<Dimension> dimensions, ArrayRef<int64_t> permutation) {
  Dimensions result;
  for (int64_t from : permutation)
    result.push_back(dimensions[from]);
  return result;
}

SmallVector<int64_t> inverse(ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> result(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    result[from] = to;
  return result;
}

RankedTensorType wideType(RankedTensorType type) {
  if (type.getElementType().isF64())
    return type;
  return withElement(type, Float32Type::get(type.getContext()));
}

Type promoted(Type a, Type b) {
  if (a == b)
    return a;
  if (a.isF64() || b.isF64())
    return Float64Type::get(a.getContext());
  return Float32Type::get(a.getContext());
}

} // namespace cermet::ir
