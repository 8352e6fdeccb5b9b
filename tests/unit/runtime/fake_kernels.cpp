// Host kernels as the compiler would make them, written by hand: what tests launch without a compiler. All work on f32.
#include "runtime/abi/RowArguments.h"
#include <cstring>

using cermet::HostFault;
using cermet::RowArguments;

namespace {

// The address of a row, as the contract of RowArguments says.
float* rowOf(const RowArguments* arguments, int operand, int64_t row, int64_t elementBytes = sizeof(float)) {
  char* base = arguments->operand[operand].base;
  for (int64_t position = cermet::kMaxRowExtents - 1; position >= cermet::kMaxRowExtents - arguments->rowRank;
       --position) {
    base += (row % arguments->extent[position]) * arguments->operand[operand].stride[position] * elementBytes;
    row /= arguments->extent[position];
  }
  return reinterpret_cast<float*>(base);
}

constexpr int64_t kColumns = 8;

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// y = x * weight, [.., 8] by [8]
EXPORT void scale_vector(const RowArguments* arguments, int64_t begin, int64_t end, int64_t, HostFault*) {
  for (int64_t row = begin; row < end; ++row)
    for (int64_t column = 0; column < kColumns; ++column)
      rowOf(arguments, 2, row)[column] =
          rowOf(arguments, 0, row)[column] * reinterpret_cast<float*>(arguments->operand[1].base)[column];
}
EXPORT void scale_scalar(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault*) {
  scale_vector(arguments, begin, end, part, nullptr);
}

// Negated, which so shows.
EXPORT void negated_scalar(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault*) {
  scale_vector(arguments, begin, end, part, nullptr);
  for (int64_t row = begin; row < end; ++row)
    for (int64_t column = 0; column < kColumns; ++column)
      rowOf(arguments, 2, row)[column] *= -1;
}

// Both by the same weight; the second's rows follow the first's, as its argument does.
EXPORT void beside_vector(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault*) {
  const auto* second =
      reinterpret_cast<const RowArguments*>(reinterpret_cast<const char*>(arguments) + cermet::argumentBytes(3));
  const int64_t rows = arguments->rows;
  scale_vector(arguments, begin < rows ? begin : rows, end < rows ? end : rows, part, nullptr);
  scale_vector(second, begin > rows ? begin - rows : 0, end > rows ? end - rows : 0, part, nullptr);
}
EXPORT void beside_scalar(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault*) {
  beside_vector(arguments, begin, end, part, nullptr);
}

// y = the rows of x by their numbers, -1 where there is none; negated in the scalar entry, which so shows
EXPORT void gather_vector(const RowArguments* arguments, int64_t begin, int64_t end, int64_t, HostFault*) {
  const cermet::RowOperand& source = arguments->operand[0];
  for (int64_t row = begin; row < end; ++row) {
    const int64_t number = *reinterpret_cast<int64_t*>(rowOf(arguments, 1, row, sizeof(int64_t)));
    const bool exists = number >= 0 && number < source.stride[cermet::kGatheredRows];
    for (int64_t column = 0; column < kColumns; ++column)
      rowOf(arguments, 2, row)[column] =
          exists ? reinterpret_cast<float*>(source.base)[number * source.stride[cermet::kGatheredStride] + column] : -1;
  }
}
// The same, but it says so of a number that is none.
EXPORT void checked_vector(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault* fault) {
  gather_vector(arguments, begin, end, part, nullptr);
  const int64_t rows = arguments->operand[0].stride[cermet::kGatheredRows];
  for (int64_t row = end; row-- > begin;) {
    const int64_t number = *reinterpret_cast<int64_t*>(rowOf(arguments, 1, row, sizeof(int64_t)));
    if (number < 0 || number >= rows)
      *fault = {row, number, rows, 0};
  }
}

EXPORT void gather_scalar(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault*) {
  gather_vector(arguments, begin, end, part, nullptr);
  for (int64_t row = begin; row < end; ++row)
    for (int64_t column = 0; column < kColumns; ++column)
      rowOf(arguments, 2, row)[column] *= -1;
}

// out[8] = sum over rows of x
EXPORT void sum_rows(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault*) {
  float* partial = arguments->partials + part * kColumns;
  for (int64_t column = 0; column < kColumns; ++column)
    partial[column] = 0;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t column = 0; column < kColumns; ++column)
      partial[column] += rowOf(arguments, 0, row)[column];
}
EXPORT void sum_rows_fold(const RowArguments* arguments) {
  auto* out = reinterpret_cast<float*>(arguments->operand[1].base);
  for (int64_t column = 0; column < kColumns; ++column) {
    out[column] = 0;
    for (int64_t part = 0; part < arguments->partialRows; ++part)
      out[column] += arguments->partials[part * kColumns + column];
  }
}

//===--- Of a loss of rows (LossPlans.h) -----------------------------------------------------------------------------//

// y = x, [.., 8]
EXPORT void copy_rows(const RowArguments* arguments, int64_t begin, int64_t end, int64_t, HostFault*) {
  for (int64_t row = begin; row < end; ++row)
    std::memmove(rowOf(arguments, 1, row), rowOf(arguments, 0, row), kColumns * sizeof(float));
}

// kept = 1 of a row whose label is none below 0, else 0
EXPORT void kept_rows(const RowArguments* arguments, int64_t begin, int64_t end, int64_t, HostFault*) {
  for (int64_t row = begin; row < end; ++row)
    *rowOf(arguments, 1, row) = *reinterpret_cast<int64_t*>(rowOf(arguments, 0, row, sizeof(int64_t))) >= 0 ? 1 : 0;
}

// number = kept times the logit that the label names plus bias, of logits, bias, label, kept; a label behind the last
// column is a fault
EXPORT void loss_rows(const RowArguments* arguments, int64_t begin, int64_t end, int64_t, HostFault* fault) {
  const auto* bias = reinterpret_cast<const float*>(arguments->operand[1].base);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t label = *reinterpret_cast<int64_t*>(rowOf(arguments, 2, row, sizeof(int64_t)));
    const bool isThere = label >= 0 && label < kColumns;
    if (label >= kColumns && fault->row < 0)
      *fault = {row, label, kColumns, 1};
    *rowOf(arguments, 4, row) =
        isThere ? *rowOf(arguments, 3, row) * (rowOf(arguments, 0, row)[label] + bias[label]) : 0;
  }
}
// And its gradient of the logits, which may take their memory.
EXPORT void gradient_rows(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault* fault) {
  loss_rows(arguments, begin, end, part, fault);
  for (int64_t row = begin; row < end; ++row)
    for (int64_t column = 0; column < kColumns; ++column)
      rowOf(arguments, 5, row)[column] =
          column == *reinterpret_cast<int64_t*>(rowOf(arguments, 2, row, sizeof(int64_t))) ? *rowOf(arguments, 3, row)
                                                                                           : 0;
}

// total = sum over rows of number * kept, [.., 1] by [.., 1]
EXPORT void total_rows(const RowArguments* arguments, int64_t begin, int64_t end, int64_t part, HostFault*) {
  arguments->partials[part] = 0;
  for (int64_t row = begin; row < end; ++row)
    arguments->partials[part] += *rowOf(arguments, 0, row) * *rowOf(arguments, 1, row);
}
EXPORT void total_rows_fold(const RowArguments* arguments) {
  float total = 0;
  for (int64_t part = 0; part < arguments->partialRows; ++part)
    total += arguments->partials[part];
  *reinterpret_cast<float*>(arguments->operand[2].base) = total;
}
