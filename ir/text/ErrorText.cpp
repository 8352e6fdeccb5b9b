#include "ir/text/ErrorText.h"
#include "ir/text/Text.h"

using namespace mlir;

namespace cermet::ir {

static std::string placeText(Location location) {
  std::string text;
  location->walk([&](Location part) {
    auto place = dyn_cast<FileLineColLoc>(part);
    if (!place)
      return WalkResult::advance();
    text =
        (place.getFilename().getValue() + ":" + Twine(place.getLine()) + ":" + Twine(place.getColumn()) + ": ").str();
    return WalkResult::interrupt();
  });
  StringRef name = nodeName(location);
  if (text.empty() && !name.empty())
    text = ("node \"" + name + "\": ").str();
  return text;
}

static void append(std::string& error, Diagnostic& diagnostic, StringRef prefix) {
  if (!error.empty())
    error += '\n';
  error += placeText(diagnostic.getLocation()) + prefix.str() + diagnostic.str();
  for (Diagnostic& note : diagnostic.getNotes())
    append(error, note, "note: ");
}

ErrorText::ErrorText(MLIRContext& context, std::string& error)
    : handler(&context, [&error](Diagnostic& diagnostic) {
        if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
          append(error, diagnostic, "");
        return success();
      }) {}

} // namespace cermet::ir
