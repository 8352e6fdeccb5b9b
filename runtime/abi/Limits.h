// Limits that more than one room keeps. What a plan may hold: the compiler refuses a graph that needs more before
// anything is stored, and the runtime a plan that has more. docs/plan-format.md has the table.
#pragma once
#include <cstdint>

namespace cermet {

constexpr int kMaxSymbols = 32;     // different symbolic dimensions of its inputs
constexpr int kMaxValues = 1 << 20; // inputs, outputs, buffers and views, and those of one external step
constexpr int64_t kMaxDimension = int64_t(1) << 60; // as docs/ir.md has it
constexpr int kMaxGraphOperations = 100000; // of a graph: of which a plan, a match or a gradient is made, or that runs

// Columns of an attention head: the most of a row that is looked at column by column, in search of rotations and of
// reads in another order, and that has a schedule for such reads.
constexpr int kMaxHeadColumns = 512;

// What torch has ops for: one for each number of inputs, and of outputs, of a region and of a loss's.
constexpr int kMaxRegionInputs = 16;
constexpr int kMaxRegionOutputs = 8;
constexpr int kMaxLossInputs = 8;
constexpr int kMaxLossOutputs = 4;

// Numbers of rows that have a sum of their own where bags of rows are added in parts.
constexpr int kBagPart = 64;

// Columns that a kernel adds up one behind the other: a block walks over them alone.
constexpr int kMaxCumsumColumns = 1 << 18;

// Bytes of logits that a loss of a linear layer holds at once where nobody says how many.
constexpr int64_t kLogitsBytes = int64_t(512) << 20;

} // namespace cermet
