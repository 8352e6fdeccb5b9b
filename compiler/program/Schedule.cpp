#include "compiler/program/Schedule.h"
#include "compiler/program/Scaling.h"
#include "compiler/program/Target.h"
#include "runtime/abi/Limits.h"
#include "runtime/abi/Targets.h"
#include <algorithm>
#include <numeric>

namespace cermet {
namespace {

// One group of rows a block, straight to registers, by the bytes of a row's inputs. Few threads with several vectors
// each keep loads in flight; the bound on resident blocks stops the compiler from spending registers that other blocks
// need.
struct RowStep {
  int64_t rowBytes;
  int threadsPerRow, threads, residentBlocks;
};
constexpr RowStep kRowLadder[] = {{256, 8, 256, 4},     {512, 16, 128, 8},    {1024, 32, 128, 8},
                                  {2048, 64, 128, 8},   {4096, 128, 128, 10}, {8192, 128, 128, 6},
                                  {16384, 128, 128, 4}, {32768, 256, 256, 2}};

// Persistent blocks that sum over rows, by the same measure; `stages` rows are in flight where shared memory holds
// them. Longer rows leave one block a multiprocessor. (docs/performance.md says
// what was tried.)
struct PersistentStep {
  int64_t rowBytes;
  int threads, blocksPerSm, stages;
};
constexpr PersistentStep kPersistentLadder[] = {{1024, 128, 8, 2},  {8192, 128, 4, 2},     {12288, 128, 3, 2},
                                                {16384, 256, 2, 2}, {24576, 512, 2, 2},    {32768, 512, 1, 3},
                                                {98304, 256, 1, 2}, {INT64_MAX, 512, 1, 2}};

// Blocks that walk long rows, by the bytes of a row's inputs, where a multiprocessor's memory holds so many; the last
// holds what it can. (Measured with loss and gradient: docs/performance.md.)
struct LongStep {
  int64_t rowBytes;
  int threads, blocksPerSm;
};
constexpr LongStep kLongLadder[] = {
    {16 * 1024, 128, 8}, {32 * 1024, 256, 5}, {72 * 1024, 256, 3}, {110 * 1024, 512, 2}, {INT64_MAX, 1024, 1}};
constexpr LongStep kReadAgain = {INT64_MAX, 256, 4}; // single elements, which are not copied
constexpr int64_t kMaxKeptRowBytes = 32 * 1024;      // of a row that registers keep
constexpr int64_t kLeastLongRowBytes = 8 * 1024;     // of one whose exponentials or vectors they do not keep

constexpr int kMaxElementsPerThread = 64; // of a row, before registers run out
constexpr int kMaxSumsPerThread = 128;    // of sums over rows, where more threads can share them
constexpr int kMaxPersistentThreads = 512;
constexpr int kLeastSummingBlocks = 4;                         // per multiprocessor, of narrow rows
constexpr int kColumnThreads = 256, kColumnThreadsPerRow = 32; // of a block that has some columns of all rows
constexpr double kMaxIdle = 0.15;                              // of a row's threads in its last vectors
constexpr int kMaxFittedElements = 24; // of a thread, where fewer threads share a row than the ladder says
constexpr int kMaxWarpRegisters = 48;  // of a thread for packed and kept values of a row that a warp has alone
constexpr int kMaxBusyRegisters = 80;  // of a thread there, where of more threads many would be idle
constexpr int kScalingBlocks = 16;     // per multiprocessor
constexpr int kTurnedThreads = 256;    // of a block that turns tiles
constexpr int kTurnedBlocks = 4;       // per multiprocessor, for which it leaves registers
constexpr int kLeastTurned = 32;       // columns that are worth a tile
constexpr int kMaxHeadThreads = 8, kMaxHeadThreadsPerSm = 1024, kHeadBlocksPerSm = 4;
constexpr int kOtherRegisters = 28;     // of a thread
constexpr int kStageRegisters = 8;      // more where several barriers lie between stages that read the row
constexpr int kMaxPackedRegisters = 64; // where a block has few threads, which then have many registers

// Registers that a column's sums over rows take, with what their additions lose where they are stored in f32.
int sumsPerElement(const RowProgram& program) {
  const int sums = int(program.summedOverRows().size());
  const bool compensated = std::any_of(program.operands.begin(), program.operands.end(), [](const Operand& operand) {
    return operand.isOutput && operand.kind == OperandKind::Column && operand.dtype == DType::F32;
  });
  return compensated ? 2 * sums : sums;
}

int powerOfTwoAtLeast(int64_t value) {
  int result = 1;
  while (result < value)
    result *= 2;
  return result;
}

int64_t divideUp(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Bytes that a thread keeps packed for each of its elements: tiles, and columns where rows of a block share them not.
int keptBytes(const RowProgram& program, bool withColumns) {
  int bytes = 0;
  for (const Operand& operand : program.operands)
    // What is read in another order is among what is kept of the tensor (ProgramText::isLocal).
    if (!operand.isOutput && operand.of < 0 &&
        (operand.kind == OperandKind::Tile || operand.kind == OperandKind::Gathered ||
         (withColumns && operand.kind == OperandKind::Column)))
      bytes += byteSize(operand.dtype);
  return bytes;
}

// Whether elements' exponentials are computed, as in every softmax.
bool exponentiates(const RowProgram& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& it) { return it.opcode == Opcode::Exp && it.space == Space::Element; });
}

// A row's group as the ladder has it, made to fit: no more threads than columns keep busy, a warp of its own where a
// warp's registers hold a row that meets several barriers, and no promise of more blocks than registers allow.
void fitRow(const RowProgram& program, Schedule& schedule) {
  const auto elements = [&](int threads) {
    return divideUp(program.columns, int64_t(threads) * schedule.vector) * schedule.vector;
  };
  const auto idle = [&](int threads) { return 1 - double(program.columns) / double(elements(threads) * threads); };
  // An exponential that a later stage reads again is kept too, about one for each element.
  const bool meetsBarriers = program.stages() > 2, keeps = meetsBarriers && exponentiates(program);
  const auto registers = [&](int threads, bool withColumns) {
    return elements(threads) * keptBytes(program, withColumns) / 4 +
           (keeps && elements(threads) <= 32 ? elements(threads) : 0);
  };
  const int given = schedule.threadsPerRow;
  // Where nothing is kept, half of the elements are unpacked at a time.
  const int64_t alone = registers(32, true) + (keeps ? 0 : elements(32) / 2);
  if (meetsBarriers && alone <= (keeps || idle(given) <= kMaxIdle ? kMaxWarpRegisters : kMaxBusyRegisters))
    schedule.threadsPerRow = std::min(given, 32);
  else if (idle(given) > kMaxIdle || meetsBarriers)
    for (int threads = given / 2; threads >= 64 && elements(threads) <= kMaxFittedElements; threads /= 2)
      if (idle(threads) <= kMaxIdle)
        schedule.threadsPerRow = threads;
  if (schedule.threadsPerRow != given) {
    schedule.residentBlocks *= schedule.threads;
    schedule.threads = schedule.threadsPerRow < 64 ? 128 : schedule.threadsPerRow;
    schedule.residentBlocks = std::max(schedule.residentBlocks / schedule.threads, 1);
  }
  const int others = kOtherRegisters + (meetsBarriers && !keeps ? kStageRegisters : 0);
  const int64_t needed = (registers(schedule.threadsPerRow, true) + others + 7) / 8 * 8;
  schedule.residentBlocks = std::clamp<int64_t>(65536 / (needed * schedule.threads), 1, schedule.residentBlocks);
}

// Persistent blocks that sum narrow rows, no more than a multiprocessor has registers for.
int blocksForSums(const RowProgram& program, const Schedule& schedule) {
  const int64_t threads = int64_t(schedule.threadsPerRow) * schedule.vector;
  const int64_t elements = divideUp(program.columns, threads) * schedule.vector;
  const int64_t held = elements * (4 * sumsPerElement(program) + keptBytes(program, true)) / 4;
  const int64_t needed = (held + kOtherRegisters + 7) / 8 * 8;
  const int64_t fitting = 65536 / (needed * schedule.threads);
  return int(std::clamp<int64_t>(fitting, std::min(schedule.blocksPerSm, kLeastSummingBlocks), schedule.blocksPerSm));
}

// Of what warps tell each other: reductions and cumulative sums, those of integers as pairs.
int reductionBytes(const RowProgram& program, const Schedule& schedule) {
  int values = 0, integers = 0;
  for (const Instruction& instruction : program.instructions) {
    const bool isSum = instruction.opcode == Opcode::Cumsum;
    values += isSum || isReduction(instruction.opcode);
    integers += isSum && classOf(instruction.type) == ValueClass::Integer;
  }
  values += integers + (integers > 0 && (values + integers) % 2);
  return 2 * std::max(values, 1) * (schedule.threads / 32) * int(sizeof(float));
}

// Whether a row may begin in the midst of a vector: all that is read of it are tiles, whose vectors are at the same
// columns (long_row.cuh).
bool hasEdges(const RowProgram& program) {
  return std::ranges::none_of(program.operands, [](const Operand& operand) {
    return operand.kind == OperandKind::Column || operand.kind == OperandKind::Gathered || operand.isStrided ||
           operand.map.isMapped();
  });
}

// A block a row, as much of it in shared memory as that holds. `isCopied`: whether asynchronous copies can move it.
void walkLongRow(const RowProgram& program, int64_t tileBytes, bool isCopied, const CudaTarget& multiprocessor,
                 Schedule& schedule) {
  const int64_t rowBytes = program.columns * tileBytes;
  schedule.stages = kRollingStages;
  schedule.vectorsPerThread = 0;
  if (!isCopied) {
    schedule.threads = schedule.threadsPerRow = kReadAgain.threads;
    schedule.blocksPerSm = schedule.residentBlocks = kReadAgain.blocksPerSm;
    schedule.sharedBytes = reductionBytes(program, schedule);
    return;
  }
  for (const LongStep& step : kLongLadder) {
    schedule.threads = schedule.threadsPerRow = step.threads;
    schedule.blocksPerSm = schedule.residentBlocks = std::min(step.blocksPerSm, multiprocessor.threads / step.threads);
    // A block's own KiB of what the system keeps for four.
    const int64_t room =
        (multiprocessor.sharedBytes + 4 * 1024) / schedule.blocksPerSm - 1024 - reductionBytes(program, schedule);
    const int64_t vectorBytes = schedule.threads * schedule.vector * tileBytes;
    const int64_t vectors = divideUp(program.columns, int64_t(schedule.threads) * schedule.vector);
    schedule.vectorsPerThread = int(std::min(vectors, room / vectorBytes));
    schedule.sharedBytes = int(schedule.vectorsPerThread * vectorBytes) + reductionBytes(program, schedule);
    if (rowBytes <= step.rowBytes && schedule.vectorsPerThread == vectors)
      break;
  }
}

// An attention head's row, read in another order of columns. Its rows rarely collapse, so each begins at an index of
// several dimensions: few threads with two vectors or more share it. Best are as many as leave both halves of a pair to
// one thread, which then reads the row once; any number of them where nothing is reduced.
void fitHead(const RowProgram& program, Schedule& schedule) {
  const int vectors = static_cast<int>(program.columns / schedule.vector);
  const auto isLocal = [&](int threads) {
    return std::ranges::all_of(program.operands, [&](const Operand& operand) {
      return operand.of < 0 || operand.map.isWithin(int64_t(threads) * schedule.vector);
    });
  };
  int threadsPerRow = kMaxHeadThreads;
  while (threadsPerRow > 1 && (vectors % threadsPerRow != 0 || 2 * threadsPerRow > vectors))
    threadsPerRow /= 2;
  if (!isLocal(threadsPerRow) && !program.reduces() && vectors % 2 == 0 && vectors / 2 <= kMaxHeadThreads &&
      isLocal(vectors / 2))
    threadsPerRow = vectors / 2;
  schedule.threadsPerRow = threadsPerRow;
  schedule.threads = std::lcm(threadsPerRow, 32);
  schedule.threads *= std::max(128 / schedule.threads, 1);
  if (program.accumulates()) {
    schedule.residentBlocks = schedule.blocksPerSm = kHeadBlocksPerSm;
    return;
  }
  const int64_t elements = program.columns / threadsPerRow;
  const int64_t needed = (elements * keptBytes(program, true) / 4 + kOtherRegisters + 7) / 8 * 8;
  schedule.residentBlocks =
      std::clamp<int64_t>(65536 / (needed * schedule.threads), 1, kMaxHeadThreadsPerSm / schedule.threads);
}

// A block for a square tile, of which it turns the strided inputs' part in shared memory (turned.cuh): what lies
// together in memory is 128 bytes long, or 64 elements. Whether there are such inputs.
bool turn(const RowProgram& program, const CudaTarget& multiprocessor, Schedule& schedule) {
  int widest = 0;
  for (const Operand& operand : program.operands) {
    if (operand.kind == OperandKind::Gathered)
      return false;
    if (operand.kind == OperandKind::Tile && operand.isStrided)
      widest = std::max(widest, byteSize(operand.dtype));
  }
  const int side = widest == 1 ? 128 : 64;
  int bytes = 0;
  for (const Operand& operand : program.operands)
    if (const int size = byteSize(operand.dtype); operand.kind == OperandKind::Tile && operand.isStrided)
      bytes += side * (side * size + std::max(size, 4));
  if (widest == 0 || program.columns < kLeastTurned || bytes > multiprocessor.sharedBytes / 2)
    return false;
  schedule.skeleton = Skeleton::Turned;
  schedule.threads = kTurnedThreads;
  schedule.threadsPerRow = kTurnedThreads / side;
  schedule.residentBlocks = kTurnedBlocks;
  schedule.sharedBytes = bytes;
  return true;
}

} // namespace

Schedule chooseSchedule(const RowProgram& program, const std::string& target) {
  Schedule schedule;
  const CudaTarget* multiprocessor = cudaTarget(target);
  if (!multiprocessor) // a host
    return schedule;

  // Bytes move in vectors of eight: more would cost the other operands too many registers.
  int narrowest = 4, tileBytes = 0;
  bool strided = false;
  for (const Operand& operand : program.operands)
    if (operand.kind == OperandKind::Tile || operand.kind == OperandKind::Gathered) {
      narrowest = std::min(narrowest, std::max(byteSize(operand.dtype), 2));
      strided |= operand.isStrided || operand.map.isMapped();
      if (!operand.isOutput)
        tileBytes += byteSize(operand.dtype);
    }
  schedule.vector = 16 / narrowest;
  while (program.columns % schedule.vector != 0)
    schedule.vector /= 2;
  for (const Operand& operand : program.operands)
    schedule.vector = operand.map.vectorWithin(schedule.vector);

  const bool mapped = std::any_of(program.operands.begin(), program.operands.end(),
                                  [](const Operand& operand) { return operand.map.isMapped(); });
  // A thread asks for a bag's bounds before anything else: then it has several vectors to store.
  const bool hasBags = std::any_of(program.operands.begin(), program.operands.end(),
                                   [](const Operand& operand) { return operand.from >= 0; });
  if (!program.reduces() && !program.accumulates() && !mapped && !hasBags) {
    const auto scaling = scalingOf(program);
    if (!scaling && turn(program, *multiprocessor, schedule))
      return schedule;
    schedule.skeleton = Skeleton::Flat;
    schedule.threads = schedule.threadsPerRow = 128;
    if (scaling) // which may have nothing to do: blocks that are only started cost more than a copy
      schedule.blocksPerSm = kScalingBlocks;
    return schedule;
  }

  if (program.accumulates() && !program.reduces() && !program.hasCumsums() && !mapped && !hasBags &&
      program.columns > int64_t(kMaxPersistentThreads) * kMaxElementsPerThread) {
    schedule.skeleton = Skeleton::Column;
    schedule.threads = kColumnThreads;
    schedule.threadsPerRow = kColumnThreadsPerRow;
    schedule.sharedBytes = kColumnThreads * schedule.vector * int(sizeof(float));
    return schedule;
  }

  schedule.skeleton = Skeleton::Row;
  const int64_t rowBytes = program.columns * tileBytes;
  const auto longRow = [&] {
    if (tileBytes > 0 && hasEdges(program))
      schedule.vector = 16 / narrowest;
    const bool isCopied = tileBytes > 0 && !strided && schedule.vector * narrowest >= 4;
    walkLongRow(program, tileBytes, isCopied, *multiprocessor, schedule);
    return schedule;
  };
  // Too long for registers: the whole block walks the row again for every stage.
  const auto walkAgain = [&] {
    schedule.threads = schedule.threadsPerRow = 512;
    schedule.residentBlocks = 1;
    schedule.vectorsPerThread = 0;
    schedule.sharedBytes = reductionBytes(program, schedule);
    return schedule;
  };
  const bool isBetterHeld = schedule.vector * narrowest < 8 && hasEdges(program) && rowBytes > kLeastLongRowBytes;
  if (!program.accumulates() && program.hasCumsums() && rowBytes > kMaxKeptRowBytes)
    return walkAgain(); // in the order of columns, which the vectors of a long row have not
  if (!program.accumulates() && !program.hasCumsums() && (rowBytes > kMaxKeptRowBytes || isBetterHeld))
    return longRow();
  int mostStages = 0;
  if (program.accumulates()) {
    const PersistentStep& step = *std::find_if(std::begin(kPersistentLadder), std::end(kPersistentLadder),
                                               [&](const PersistentStep& it) { return rowBytes <= it.rowBytes; });
    schedule.threads = step.threads;
    schedule.blocksPerSm = step.blocksPerSm;
    mostStages = step.stages;
    const auto elements = [&] { return divideUp(program.columns, schedule.threads); };
    while (schedule.threads < kMaxPersistentThreads &&
           (elements() > kMaxElementsPerThread || elements() * sumsPerElement(program) > kMaxSumsPerThread))
      schedule.threads *= 2;
    schedule.threadsPerRow =
        std::clamp(powerOfTwoAtLeast(divideUp(program.columns, schedule.vector)), 8, schedule.threads);
    schedule.blocksPerSm = blocksForSums(program, schedule);
    schedule.residentBlocks = schedule.blocksPerSm;
  } else {
    for (const RowStep& step : kRowLadder)
      if (rowBytes <= step.rowBytes) {
        schedule.threadsPerRow = step.threadsPerRow;
        schedule.threads = step.threads;
        schedule.residentBlocks = step.residentBlocks;
        break;
      }
    fitRow(program, schedule);
  }
  if (mapped && program.columns <= kMaxHeadColumns)
    fitHead(program, schedule);
  // Odd widths move one element at a time: spread them over more threads, and promise nothing about registers.
  if (schedule.vector * narrowest < 16) {
    schedule.residentBlocks = 1;
    while (schedule.threadsPerRow < 1024 && divideUp(program.columns, schedule.threadsPerRow) > 16)
      schedule.threadsPerRow *= 2;
    schedule.threads = std::max(schedule.threads, schedule.threadsPerRow);
  }

  int64_t vectors = divideUp(program.columns, int64_t(schedule.threadsPerRow) * schedule.vector);
  const int64_t elements = vectors * schedule.vector;
  const bool fits = program.accumulates() || schedule.threads > 256
                        ? elements <= kMaxElementsPerThread
                        : elements * tileBytes <= 4 * kMaxPackedRegisters && elements <= 2 * kMaxElementsPerThread;
  const bool losesValues = elements > kMaxKept && rowBytes > kLeastLongRowBytes && exponentiates(program);
  if (!program.accumulates() && !program.hasCumsums() && (!fits || losesValues))
    return longRow();
  if (!fits)
    return walkAgain();
  schedule.vectorsPerThread = vectors;

  const int rowsPerBlock = schedule.threads / schedule.threadsPerRow;
  int shared = reductionBytes(program, schedule);
  if (program.accumulates() && vectors > 0) {
    const int stage = int(vectors) * schedule.threads * schedule.vector * tileBytes;
    const int budget = multiprocessor->sharedBytes / schedule.blocksPerSm;
    for (int stages = mostStages; stages >= 2 && schedule.stages == 0; --stages)
      if (!strided && schedule.vector * narrowest >= 4 && stages * stage + shared <= budget) {
        schedule.stages = stages;
        shared += stages * stage;
      }
    if (rowsPerBlock > 1)
      shared = std::max(shared, int(program.columns) * int(sizeof(float)));
  }
  schedule.sharedBytes = shared;
  schedule.residentBlocks = std::min(
      {schedule.residentBlocks, std::max(multiprocessor->threads / schedule.threads, 1), multiprocessor->blocks});
  return schedule;
}

} // namespace cermet
