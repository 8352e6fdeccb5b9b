#include "ir/text/Literal.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"

namespace cermet::ir {

TextLiteral readLiteral(llvm::StringRef text, size_t offset) {
  llvm::SmallVector<llvm::UTF8, 64> bytes;
  llvm::SmallVector<size_t, 64> places; // of the bytes
  size_t i = offset + 1;
  while (i < text.size() && text[i] != '"' && text[i] != '\n') {
    const size_t place = i;
    char byte = text[i++];
    if (byte == '\\' && i + 1 < text.size() && llvm::isHexDigit(text[i]) && llvm::isHexDigit(text[i + 1])) {
      byte = static_cast<char>(llvm::hexFromNibbles(text[i], text[i + 1]));
      i += 2;
    } else if (byte == '\\' && i < text.size()) {
      ++i; // a quote, a backslash, a tab or a line break: ASCII, as what stands for it here
    }
    if (byte == 0)
      return {i, "a name has a zero here, where it would end in C; leave it out", place};
    bytes.push_back(static_cast<llvm::UTF8>(byte));
    places.push_back(place);
  }
  const size_t end = std::min(i + 1, text.size());
  const llvm::UTF8* position = bytes.begin();
  if (!llvm::isLegalUTF8String(&position, bytes.end()))
    return {end, "what this escape stands for is not UTF-8", places[position - bytes.begin()]};
  return {end, ""};
}

} // namespace cermet::ir
