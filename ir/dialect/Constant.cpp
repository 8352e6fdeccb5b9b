// How a constant is written. The attribute is an f64, whatever the element type: kernels round it to theirs.
// Hexadecimal digits are the bits of the element type of the result, as in MLIR's own literals.
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Ops.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using llvm::APFloat;

namespace cermet::ir {

static APFloat converted(APFloat value, const llvm::fltSemantics& semantics) {
  bool losesInfo;
  value.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  return value;
}

// "0x..." as it stands in the text, since a number does not know how many digits it was written with; empty where
// something else stands there.
static ParseResult parseHexadecimal(OpAsmParser& parser, StringRef& written) {
  const char* begin = parser.getCurrentLocation().getPointer(); // of a text that ends in a zero
  if (begin[0] != '0' || begin[1] != 'x' || !llvm::isHexDigit(begin[2]))
    return success();
  llvm::APInt number;
  if (parser.parseInteger(number))
    return failure();
  written = StringRef(begin, parser.getCurrentLocation().getPointer() - begin).take_while(llvm::isAlnum);
  return success();
}

static FailureOr<APFloat> fromBits(OpAsmParser& parser, SMLoc place, StringRef written, Type element) {
  auto real = dyn_cast<FloatType>(element);
  if (!real)
    return parser.emitError(place) << written
                                   << " is the bits of a real, expected a decimal such as 42.0 (the elements "
                                   << "are " << element << ")";
  const StringRef digits = written.drop_front(2);
  if (digits.size() * 4 != real.getWidth())
    return parser.emitError(place) << written << " has " << digits.size() << " hexadecimal digits, expected "
                                   << real.getWidth() / 4 << " (the bits of " << real << ")";
  const APFloat value(real.getFloatSemantics(), llvm::APInt(real.getWidth(), digits, 16));
  return converted(value, APFloat::IEEEdouble());
}

ParseResult ConstantOp::parse(OpAsmParser& parser, OperationState& state) {
  const SMLoc place = parser.getCurrentLocation();
  FailureOr<APFloat> value(APFloat(0.0));
  StringRef written;
  RankedTensorType type;
  if (parseHexadecimal(parser, written) || (written.empty() && parser.parseFloat(APFloat::IEEEdouble(), *value)) ||
      parser.parseOptionalAttrDict(state.attributes) || parser.parseColonType(type))
    return failure();
  if (!written.empty() && failed(value = fromBits(parser, place, written, type.getElementType())))
    return failure();
  state.getOrAddProperties<Properties>().value = FloatAttr::get(parser.getBuilder().getF64Type(), *value);
  state.addTypes(type);
  return success();
}

// The shortest of MLIR's decimals that is read back to the same bits; MLIR itself writes whole numbers of more than
// seven digits as bits.
static SmallString<32> decimal(const APFloat& value) {
  SmallString<32> text;
  value.toString(text, /*FormatPrecision=*/6, /*FormatMaxPadding=*/0, /*TruncateZero=*/false);
  if (APFloat(value.getSemantics(), text).bitwiseIsEqual(value))
    return text;
  text.clear();
  value.toString(text);
  if (!StringRef(text).contains('.'))
    text += ".0";
  return text;
}

void ConstantOp::print(OpAsmPrinter& printer) {
  const Type element = getElementTypeOrSelf(getType());
  APFloat value = getValue();
  if (!value.isFinite()) // which not every element type has
    value = APFloat(roundTo(element, value.convertToDouble()));
  printer << ' ';
  if (value.isFinite())
    printer << decimal(value);
  else
    printer.printFloat(converted(value, cast<FloatType>(element).getFloatSemantics()));
  printer.printOptionalAttrDict((*this)->getAttrs(), getValueAttrName().getValue());
  printer << " : " << getType();
}

} // namespace cermet::ir
