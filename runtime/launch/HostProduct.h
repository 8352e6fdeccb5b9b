// A product of matrices on the CPU where nobody brings a better one: every product and sum in f64, rounded once, its
// columns shared among threads. It is right, and no BLAS.
#pragma once
#include "frontends/c/cermet.h"
#include "runtime/support/ThreadPool.h"

namespace cermet {

// `result` [m, n] becomes left [m, k] times right [k, n], or has it added. Of f32, bf16 or f16 each, with any strides;
// `result` overlaps neither.
void hostProduct(ThreadPool& pool, const cermet_tensor& left, const cermet_tensor& right, const cermet_tensor& result,
                 bool accumulate);

} // namespace cermet
