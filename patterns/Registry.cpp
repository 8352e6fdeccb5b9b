#include "patterns/Registry.h"

// One line for each pattern; patterns/<file>.cpp defines the function.
#define CERMET_PATTERNS(PATTERN)                                                                                       \
  PATTERN(rmsNorm)                                                                                                     \
  PATTERN(addRmsNorm)                                                                                                  \
  PATTERN(glu)                                                                                                         \
  PATTERN(softcap)

namespace cermet {

#define DECLARE(function) Pattern function();
CERMET_PATTERNS(DECLARE)
#undef DECLARE

llvm::ArrayRef<Pattern> patterns() {
#define CALL(function) function(),
  static const Pattern registry[] = {CERMET_PATTERNS(CALL)};
#undef CALL
  return registry;
}

} // namespace cermet
