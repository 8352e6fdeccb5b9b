#include "patterns/Registry.h"

// One line for each finder; patterns/fusions/<file>.cpp defines the function.
#define CERMET_FUSIONS(FINDER)                                                                                         \
  FINDER(rmsNorm)                                                                                                      \
  FINDER(addRmsNorm)                                                                                                   \
  FINDER(glu)                                                                                                          \
  FINDER(softcap)                                                                                                      \
  FINDER(rope)                                                                                                         \
  FINDER(crossEntropy)

namespace cermet {

#define DECLARE(function) Finder function();
CERMET_FUSIONS(DECLARE)
#undef DECLARE

llvm::ArrayRef<Finder> fusions() {
#define CALL(function) function(),
  static const Finder registry[] = {CERMET_FUSIONS(CALL)};
#undef CALL
  return registry;
}

} // namespace cermet
