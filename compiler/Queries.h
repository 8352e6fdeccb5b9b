// What frontends ask of a graph beside its plan: matches, a gradient (both as JSON, docs/plan-format.md), and what it
// means in float64.
#pragma once
#include "frontends/c/cermet.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet {

struct Dump;

// Each returns CERMET_OK and fills `json`, or another status and fills `error`.
cermet_status matchGraph(llvm::StringRef text, const Dump& dump, std::string& json, std::string& error);
cermet_status differentiateGraph(llvm::StringRef text, const uint8_t* wanted, int32_t count, const Dump& dump,
                                 std::string& json, std::string& error);
// A loss of a linear layer, whose logits come in pieces. `wanted`: for each input 0, 1 where its gradient is wanted in
// its type, 2 in f32; none of `count` 0.
cermet_status linearLossOf(llvm::StringRef text, const uint8_t* wanted, int32_t count, const Dump& dump,
                           std::string& json, std::string& error);

// `tensors` holds the function's inputs, then its outputs: dense float64 in memory, the function's own types in
// `dtype`.
cermet_status interpretGraph(llvm::StringRef text, bool honourCasts, const cermet_tensor* tensors, int32_t count,
                             std::string& error);

} // namespace cermet
