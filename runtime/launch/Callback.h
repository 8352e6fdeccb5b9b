// A caller's callback, whose exceptions end here.
#pragma once
#include "frontends/c/cermet.h"
#include <exception>
#include <string>

namespace cermet {

// What the callback returns. Where it throws, CERMET_INTERNAL, and `threw` says what.
inline cermet_status callBack(cermet_external callback, void* user, const char* op, const cermet_tensor* tensors,
                              int32_t operands, int32_t results, void* stream, std::string& threw) {
  try {
    return callback(user, op, tensors, operands, results, stream);
  } catch (const std::exception& failure) {
    threw = failure.what();
  } catch (...) {
    threw = "something that is no std::exception";
  }
  return CERMET_INTERNAL;
}

} // namespace cermet
