// The canonical texts of row programs and kernel specs.
#include "compiler/cuda/Emit.h"
#include "compiler/program/Schedule.h"
#include "runtime/abi/RowArguments.h"
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace cermet;

namespace {

// x * rsqrt(sum(x^2) + c) stored, x summed over rows: every kind of operand and instruction but the plain ones.
RowProgram sample(double constant) {
  RowProgram program;
  program.name = "sample";
  program.columns = 96;
  program.operands = {{"x", OperandKind::Tile, DType::BF16},         {"scale", OperandKind::Row, DType::F32},
                      {"w", OperandKind::Column, DType::F16},        {"s", OperandKind::Scalar, DType::F32},
                      {"y", OperandKind::Tile, DType::F16, true},    {"r", OperandKind::Row, DType::F32, true},
                      {"dw", OperandKind::Column, DType::BF16, true}};
  using enum Opcode;
  program.instructions = {{Load, DType::BF16, Space::Element, 0, {-1, -1}, 0},
                          {Load, DType::F32, Space::Row, 0, {-1, -1}, 1},
                          {Load, DType::F16, Space::Column, 0, {-1, -1}, 2},
                          {Load, DType::F32, Space::Uniform, 0, {-1, -1}, 3},
                          {Constant, DType::F32, Space::Uniform, 0, {-1, -1}, -1, constant},
                          {Mul, DType::F32, Space::Element, 0, {0, 0}},
                          {ReduceSum, DType::F32, Space::Row, 0, {5, -1}},
                          {Add, DType::F32, Space::Row, 1, {6, 4}},
                          {Rsqrt, DType::F32, Space::Row, 1, {7, -1}},
                          {Mul, DType::F16, Space::Element, 1, {0, 8}},
                          {Mul, DType::F16, Space::Element, 1, {9, 2}},
                          {Sub, DType::F32, Space::Row, 1, {8, 1}},
                          {Mul, DType::F32, Space::Row, 1, {11, 3}},
                          {Store, DType::F16, Space::Element, 1, {10, -1}, 4},
                          {Store, DType::F32, Space::Row, 1, {12, -1}, 5},
                          {AccumulateRows, DType::BF16, Space::Column, 1, {9, -1}, 6}};
  return program;
}

KernelSpec sampleSpec() {
  KernelSpec spec{"sm_90", "traced", {{sample(1e-6), {}}}};
  Schedule& schedule = spec.programs[0].schedule;
  schedule.skeleton = Skeleton::Row;
  schedule.threadsPerRow = 32;
  schedule.vector = 8;
  schedule.stages = 2;
  schedule.sharedBytes = 4096;
  return spec;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(RowProgram, TextComesBackExactly) {
  std::mt19937_64 random(std::random_device{}());
  for (int i = 0; i < 1000; ++i) {
    RowProgram program = sample(std::bit_cast<double>(random())), parsed;
    std::string text = print(program);
    ASSERT_EQ(parse(text, parsed), "") << text;
    ASSERT_EQ(print(parsed), text);
    if (!std::isnan(program.instructions[4].constant)) {
      ASSERT_EQ(parsed.instructions[4].constant, program.instructions[4].constant) << text;
    }
  }
}

TEST(RowProgram, TextKeepsUnusualNumbers) {
  for (double value :
       {0.0, -0.0, double(INFINITY), -double(INFINITY), std::numeric_limits<double>::denorm_min(), 1e308, 0.1}) {
    RowProgram parsed;
    ASSERT_EQ(parse(print(sample(value)), parsed), "");
    EXPECT_EQ(std::bit_cast<uint64_t>(parsed.instructions[4].constant), std::bit_cast<uint64_t>(value)) << value;
  }
}

TEST(RowProgram, KnowsItsStages) {
  RowProgram program = sample(1);
  EXPECT_EQ(program.stages(), 2);
  EXPECT_TRUE(program.reduces());
  EXPECT_TRUE(program.accumulates());
  program.instructions.resize(6);
  EXPECT_EQ(program.stages(), 1);
  EXPECT_FALSE(program.reduces());
  EXPECT_FALSE(program.accumulates());
}

TEST(RowProgram, HasCumulativeSums) {
  const std::string text = "program sums 64\nin x tile f32\nout y tile f32\nout r row f32\n"
                           "%0 = load x : f32 element 0\n%1 = cumsum %0 1 : f32 element 0\n"
                           "%2 = reduce_sum %1 : f32 row 0\n%3 = mul %1 %2 : f32 element 1\n"
                           "%4 = store %3 y : f32 element 1\n%5 = store %2 r : f32 row 1\n";
  RowProgram program;
  ASSERT_EQ(parse(text, program), "");
  EXPECT_EQ(print(program), text);
  EXPECT_TRUE(program.reduces());
  EXPECT_TRUE(program.runsBackward());
  EXPECT_EQ(program.stages(), 2);
  const auto refused = [&](const std::string& from, const std::string& to) {
    return parse(replaced(text, from, to), program);
  };
  EXPECT_EQ(refused("cumsum %0 1 : f32 element", "cumsum %0 2 : f32 element"),
            "program sums: instruction 1: a cumsum of the direction 2, expected 0 or 1");
  EXPECT_EQ(refused("cumsum %0 1 : f32 element", "cumsum %0 1 : f32 row"),
            "program sums: instruction 1: cumsum gives an element value");
  EXPECT_EQ(refused("cumsum %0 1 : f32 element", "cumsum %0 1 : i64 element"),
            "program sums: instruction 1: cumsum takes numbers of the result's class");
  EXPECT_EQ(refused("%3 = mul %1 %2 : f32 element 1", "%3 = cumsum %0 : f32 element 0"),
            "program sums: instruction 4: stage is 1, expected 0 (the reductions on its longest path)");
  EXPECT_EQ(refused("mul %1 %2 : f32 element 1\n%4 = store %3 y : f32 element 1",
                    "cumsum %0 : f32 element 0\n%4 = store %3 y : f32 element 0"),
            "program sums: cumulative sums in both directions, which are two walks");
  EXPECT_EQ(refused("mul %1 %2 : f32 element 1\n%4 = store %3 y : f32 element 1",
                    "cumsum %1 1 : f32 element 0\n%4 = store %3 y : f32 element 0"),
            "program sums: a cumulative sum of what another one gives, which is a walk of its own");
}

struct Refusal {
  const char *from, *to, *message;
};

TEST(RowProgram, RefusesWhatIsNotOne) {
  const Refusal refusals[] = {
      {"program sample 96", "program sample", "line 1: expected `program <name> <columns>`"},
      {"program sample 96", "program 9 96", "line 1: expected `program <name> <columns>`"},
      {"program sample 96", "program sample 0", "program sample: columns is 0, expected at least 1"},
      {"in x tile bf16", "in x tile f64",
       "line 2: expected `in|out <name> tile|row|column|scalar|index|gathered|list <type> [strided] [rows <name> [from "
       "<name> "
       "to <name> [sums <name>] [wide]]]` or `in <name> tile|column <type> columns ...`"},
      {"out y tile", "in x row f32\nout y tile", "program sample: operand x is declared twice"},
      {"%3 = load s", "%4 = load s", "line 12: expected `%3 = <opcode> ...`"},
      {"%3 = load s", "%3 = load t", "line 12: no operand is called `t`"},
      {"constant 1", "constant one", "line 13: expected a number"},
      {"mul %0 %0", "mul %0", "line 14: mul takes 2 values"},
      {"mul %0 %0", "mul %0 %5", "program sample: instruction 5: input %5 is not an earlier value"},
      {"mul %0 %0 : f32 element 0", "mul %0 %0 : f32 element 1",
       "program sample: instruction 5: stage is 1, expected 0 (the reductions on its longest path)"},
      {"mul %0 %0 : f32 element 0", "mul %0 %0 : f32 element",
       "line 14: expected `: <type> <space> <stage>` at the end"},
      {"mul %0 %0 : f32 element", "mul %0 %0 : f32 row",
       "program sample: instruction 5: a row result cannot read %0, which is element"},
      {"reduce_sum %5 : f32 row", "reduce_sum %5 : f32 element",
       "program sample: instruction 6: reduce_sum gives a row value"},
      {"reduce_sum %5", "reduce_sum %4",
       "program sample: instruction 6: reduce_sum takes an element value, %4 is uniform"},
      {"store %12 r", "store %12 scale", "program sample: instruction 14: store of scale, which is an input"},
      {"store %10 y : f16", "store %10 y : f32", "program sample: instruction 13: type is f32, expected f16 (of y)"},
      {"accumulate_rows %9 dw : bf16", "accumulate_rows %13 dw : bf16",
       "program sample: instruction 15: input %13 is a store, which has no value"},
      {"store %12 r : f32 row 1\n%15 = accumulate_rows %9 dw : bf16 column 1\n", "store %12 r : f32 row 1\n",
       "program sample: output dw is written 0 times, expected once"}};
  for (const Refusal& refusal : refusals) {
    RowProgram program;
    EXPECT_EQ(parse(replaced(print(sample(1)), refusal.from, refusal.to), program), refusal.message) << refusal.to;
    EXPECT_EQ(program.columns, 0) << "a refused text left something behind";
  }
}

const char* const kGathered = "program gathered 8\nin ids row i32\nin table gathered bf16 strided rows ids\n"
                              "out y tile bf16\n%0 = load table : bf16 element 0\n%1 = store %0 y : bf16 element 0\n";

TEST(RowProgram, GatheredOperandsComeBackExactly) {
  RowProgram program;
  ASSERT_EQ(parse(kGathered, program), "");
  EXPECT_EQ(print(program), kGathered);
  EXPECT_EQ(program.operands[1].rowsFrom, 0);
  EXPECT_TRUE(program.operands[1].isStrided);
  EXPECT_EQ(program.operands[0].rowsFrom, -1);
}

const char* const kBags = "program bags 8\nin order list i64\nin begins row i64\nin ends row i64\n"
                          "in parts list f32\n"
                          "in table gathered bf16 strided rows order from begins to ends sums parts wide\n"
                          "out y tile f32\n%0 = load table : f32 element 0\n%1 = store %0 y : f32 element 0\n";

TEST(RowProgram, SumsOfGatheredRowsComeBackExactly) {
  RowProgram program;
  ASSERT_EQ(parse(kBags, program), "");
  EXPECT_EQ(print(program), kBags);
  EXPECT_EQ(program.operands[4].rowsFrom, 0);
  EXPECT_EQ(program.operands[4].from, 1);
  EXPECT_EQ(program.operands[4].to, 2);
  EXPECT_EQ(program.operands[4].sums, 3);
  EXPECT_TRUE(program.operands[4].isWide);
}

TEST(RowProgram, RefusesSumsOfRowsWithoutAList) {
  const Refusal refusals[] = {
      {"to ends", "to end", "the rows of table: no operand is called `end`"},
      {"list i64", "list f32", "program bags: the rows of table are those of order, which is no list of integers"},
      {"list f32", "list i32", "program bags: the sums of table are parts, which is no list of f32"},
      {"list f32", "row f32", "program bags: the sums of table are parts, which is no list of f32"},
      {"rows order from begins to ends sums parts wide", "rows begins sums parts",
       "program bags: rows of table are no sums, which alone end, are wide or have sums of parts"},
      {"rows order from begins to ends", "rows order from begins",
       "program bags: the rows of table are bounded by nothing, which is no row input of integers"},
      {"rows order", "rows begins",
       "program bags: the rows of table are those of begins, which is no list of integers"},
      {"from begins to ends", "from order to ends",
       "program bags: the rows of table are bounded by order, which is no row input of integers"},
      {" from begins to ends sums parts wide", "",
       "program bags: the rows of table are those of order, which is no row input of integers"},
      {" wide", "", "program bags: instruction 0: type is f32, expected bf16 (of table)"},
      {"%0 = load table : f32 element", "%0 = load order : i64 uniform",
       "program bags: instruction 0: load of order, a list, which gathered inputs alone read"},
      {"gathered bf16", "gathered i8", "program bags: rows of table are added, which is i8; expected reals"}};
  for (const Refusal& refusal : refusals) {
    RowProgram program;
    EXPECT_EQ(parse(replaced(kBags, refusal.from, refusal.to), program), refusal.message) << refusal.to;
  }
}

TEST(RowProgram, RefusesRowsOfNoNumbers) {
  const Refusal refusals[] = {
      {"rows ids", "rows idx", "the rows of table: no operand is called `idx`"},
      {"rows ids", "rows y", "program gathered: the rows of table are those of y, which is no row input of integers"},
      {"row i32", "row f32", "program gathered: the rows of table are those of ids, which is no row input of integers"},
      {"row i32", "tile i32",
       "program gathered: the rows of table are those of ids, which is no row input of integers"},
      {" strided rows ids", "",
       "program gathered: operand table is gathered without rows; a gathered input has its rows' numbers from another "
       "operand, no other has"},
      {"gathered bf16", "tile bf16",
       "program gathered: operand table is tile; a gathered input has its rows' numbers from another operand, no other "
       "has"},
      {"out y tile bf16", "out y gathered bf16 rows ids",
       "program gathered: operand y is gathered; a gathered input has its rows' numbers from another operand, no other "
       "has"}};
  for (const Refusal& refusal : refusals) {
    RowProgram program;
    EXPECT_EQ(parse(replaced(kGathered, refusal.from, refusal.to), program), refusal.message) << refusal.to;
  }
}

TEST(RowProgram, AnyTruncatedOrBentTextIsRefusedOrRead) {
  std::mt19937_64 random(std::random_device{}());
  std::string text = print(sampleSpec());
  for (int i = 0; i < 20000; ++i) {
    std::string bent = text;
    for (int k = static_cast<int>(random() % 4); k >= 0; --k)
      bent[random() % bent.size()] = static_cast<char>(random() % 4 ? " %0123456789\n"[random() % 13] : random());
    if (random() % 4 == 0)
      bent.resize(random() % bent.size());
    KernelSpec spec, again;
    if (parse(bent, spec).empty()) {
      ASSERT_EQ(parse(print(spec), again), "") << bent;
      ASSERT_EQ(print(again), print(spec));
    }
  }
}

TEST(KernelSpec, TextComesBackExactly) {
  KernelSpec parsed;
  std::string text = print(sampleSpec());
  ASSERT_EQ(parse(text, parsed), "");
  EXPECT_EQ(print(parsed), text);
  EXPECT_EQ(parsed.target, "sm_90");
  EXPECT_EQ(parsed.programs[0].schedule.threadsPerRow, 32);
  EXPECT_EQ(parsed.programs[0].schedule.stages, 2);
  EXPECT_EQ(parsed.programs[0].schedule.sharedBytes, 4096);
}

TEST(KernelSpec, EveryFieldIsInTheText) {
  std::string text = print(sampleSpec());
  for (auto change : std::vector<void (*)(KernelSpec&, Schedule&)>{
           [](KernelSpec&it, Schedule&) { it.target = "sm_80"; },
           [](KernelSpec&, Schedule&it) { it.skeleton = Skeleton::Flat; },
           [](KernelSpec&, Schedule&it) { it.threads = 512; }, [](KernelSpec&, Schedule&it) { it.threadsPerRow = 64; },
           [](KernelSpec&, Schedule&it) { it.vector = 4; }, [](KernelSpec&, Schedule&it) { it.vectorsPerThread = 3; },
           [](KernelSpec&, Schedule&it) { it.stages = 3; }, [](KernelSpec&, Schedule&it) { it.blocksPerSm = 2; },
           [](KernelSpec&, Schedule&it) { it.residentBlocks = 3; },
           [](KernelSpec&, Schedule&it) { it.sharedBytes = 1; },
           [](KernelSpec&it, Schedule&) { it.programs[0].program.columns = 97; }}) {
    KernelSpec changed = sampleSpec();
    change(changed, changed.programs[0].schedule);
    EXPECT_NE(print(changed), text);
  }
}

// The sample without its sum over rows, as often as wanted.
KernelSpec besideSpec(int count) {
  KernelSpec spec = sampleSpec();
  RowProgram& program = spec.programs[0].program;
  program.instructions.pop_back();
  program.operands.pop_back();
  spec.programs.resize(count, spec.programs[0]);
  for (int i = 1; i < count; ++i) {
    spec.programs[i].schedule.sharedBytes = 1024 * i;
    spec.programs[i].program.name = "other";
  }
  return spec;
}

TEST(KernelSpec, ProgramsSideBySideComeBackExactly) {
  for (int count = 1; count <= 4; ++count) {
    const std::string text = print(besideSpec(count));
    KernelSpec parsed;
    ASSERT_EQ(parse(text, parsed), "");
    EXPECT_EQ(print(parsed), text);
    ASSERT_EQ(parsed.programs.size(), size_t(count));
    EXPECT_EQ(parsed.name(), count == 1 ? "sample" : "sample_and_other");
    EXPECT_EQ(parsed.sharedBytes(), 4096);
    EXPECT_FALSE(parsed.folds());
  }
}

// With scalars that nothing reads, as many operands as a program has.
void fillOperands(RowProgram& program) {
  const int more = kMaxOperands - static_cast<int>(program.operands.size());
  for (int i = 0; i < more; ++i)
    program.operands.insert(program.operands.begin(), {fmt::format("scalar{}", i), OperandKind::Scalar, DType::F32});
  for (Instruction& instruction : program.instructions)
    instruction.operand += instruction.operand >= 0 ? more : 0;
}

TEST(KernelSpec, RefusesProgramsThatCannotStandSideBySide) {
  struct Case {
    void (*change)(KernelSpec&);
    const char* message;
  };
  const Case cases[] = {
      {[](KernelSpec& it) { it.programs.resize(5, it.programs[0]); },
       "kernel spec: 5 programs side by side, expected at most 4"},
      {[](KernelSpec& it) {
         it.programs.resize(3, it.programs[1]);
         for (ScheduledProgram& each : it.programs)
           fillOperands(each.program);
       },
       "kernel spec: programs whose arguments have 4848 bytes, expected at most 4096"},
      {[](KernelSpec& it) { it.programs[1].schedule.threads = 128; },
       "kernel spec: threads are 128 beside 256, expected equal ones"},
      {[](KernelSpec& it) { it.programs[1].schedule.blocksPerSm = 2; },
       "kernel spec: program other is persistent or sums over rows, expected to be alone or beside such as are both"},
      {[](KernelSpec& it) { it.programs[0] = sampleSpec().programs[0]; },
       "kernel spec: program sample is persistent or sums over rows, expected to be alone or beside such as are both"},
      {[](KernelSpec& it) { it.programs[1].schedule.vector = 3; },
       "kernel spec, line 27: vector is 3, expected 1, 2, 4, 8 or 16"},
      {[](KernelSpec& it) { it.programs[1].program.name = "a b"; },
       "kernel spec: line 1: expected `program <name> <columns>`"}};
  for (const Case& one : cases) {
    KernelSpec spec = besideSpec(2), parsed;
    one.change(spec);
    EXPECT_EQ(parse(print(spec), parsed), one.message);
  }
}

// A strided tile stored as another type.
RowProgram turned(int64_t columns, const char* type = "bf16") {
  RowProgram program;
  EXPECT_EQ(parse(fmt::format("program turned {0}\nin x tile {1} strided\nin s row f32\nout y tile f8e4m3\n"
                              "%0 = load x : {1} element 0\n%1 = store %0 y : f8e4m3 element 0\n",
                              columns, type),
                  program),
            "");
  return program;
}

TEST(Schedule, StridedTilesAreTurned) {
  KernelSpec spec{"sm_90", "traced", {{turned(72), chooseSchedule(turned(72), "sm_90")}}}, parsed;
  const Schedule& schedule = spec.programs[0].schedule;
  EXPECT_EQ(schedule.skeleton, Skeleton::Turned);
  EXPECT_EQ(schedule.threads, 256);
  EXPECT_EQ(schedule.threadsPerRow, 4);
  EXPECT_EQ(schedule.vector, 8);
  EXPECT_EQ(schedule.sharedBytes, 64 * (64 * 2 + 4));
  const Schedule bytes = chooseSchedule(turned(72, "f8e5m2"), "sm_90");
  EXPECT_EQ(bytes.threadsPerRow, 2);
  EXPECT_EQ(bytes.sharedBytes, 128 * (128 + 4));
  ASSERT_EQ(parse(print(spec), parsed), "");
  EXPECT_EQ(print(parsed), print(spec));
  for (const char* threads : {"threads=96 threads_per_row=3", "threads=32 threads_per_row=32"})
    EXPECT_NE(parse(replaced(print(spec), "threads=256 threads_per_row=4", threads), parsed), "");
}

// Narrow rows, a tile that is dense, rows found by number, and more than two blocks' shared memory.
TEST(Schedule, OthersAreFlat) {
  EXPECT_EQ(chooseSchedule(turned(31), "sm_90").skeleton, Skeleton::Flat);
  RowProgram program = turned(72);
  program.operands[0].isStrided = false;
  EXPECT_EQ(chooseSchedule(program, "sm_90").skeleton, Skeleton::Flat);
  program = turned(72);
  program.operands[1] = {"t", OperandKind::Gathered, DType::F32};
  EXPECT_EQ(chooseSchedule(program, "sm_90").skeleton, Skeleton::Flat);
  program = turned(72);
  program.operands.insert(program.operands.begin(), 6, {"x", OperandKind::Tile, DType::BF16, false, true});
  EXPECT_EQ(chooseSchedule(program, "sm_90").skeleton, Skeleton::Turned);
  EXPECT_EQ(chooseSchedule(program, "sm_86").skeleton, Skeleton::Flat);
}

// Products of two tiles, centred by columns, summed over rows: into outputs of these types.
RowProgram summing(const std::vector<std::string>& types) {
  RowProgram program;
  std::string text = "program sums 64\nin x tile bf16\nin y tile bf16\nin m column f32\nin s column f32\n", stores;
  for (size_t i = 0; i < types.size(); ++i) {
    text += fmt::format("out o{} column {}\n", i, types[i]);
    stores += fmt::format("%{} = accumulate_rows %{} o{} : {} column 0\n", 7 + i, i % 2 ? 4 : 6, i, types[i]);
  }
  text += "%0 = load x : bf16 element 0\n%1 = load y : bf16 element 0\n%2 = load m : f32 column 0\n"
          "%3 = load s : f32 column 0\n%4 = sub %0 %2 : f32 element 0\n%5 = mul %4 %3 : f32 element 0\n"
          "%6 = mul %5 %1 : f32 element 0\n";
  EXPECT_EQ(parse(text + stores, program), "") << text + stores;
  return program;
}

TEST(Schedule, NarrowRowsThatAreSummedHaveTheRegistersTheyTake) {
  EXPECT_EQ(chooseSchedule(summing({"bf16"}), "sm_90").blocksPerSm, 8);
  const Schedule both = chooseSchedule(summing({"f32", "f32"}), "sm_90");
  EXPECT_EQ(both.blocksPerSm, 5);
  EXPECT_EQ(both.residentBlocks, 5);
}

// One sum that is rounded to two types is summed once, and both are stored of it.
TEST(Schedule, OutputsOfOneSumShareIt) {
  const RowProgram program = summing({"f32", "f32", "bf16", "bf16"});
  EXPECT_EQ(program.summedOverRows(), (std::vector<int>{6, 4}));
  const std::string text = emitProgram({"sm_90", "traced", {{program, chooseSchedule(program, "sm_90")}}});
  EXPECT_NE(text.find("kAccumulators = 2;"), std::string::npos) << text;
  EXPECT_EQ(text.find("accumulators[2]"), std::string::npos) << text;
  EXPECT_EQ(chooseSchedule(program, "sm_90").blocksPerSm, 5);
}

TEST(KernelSpec, RefusesWhatIsNotOne) {
  const Refusal refusals[] = {
      {"cermet.kernel.1", "cermet.kernel.9",
       "kernel spec, line 1: begins with `cermet.kernel.9`, expected `cermet.kernel.1`"},
      {"target sm_90\n", "target\n", "kernel spec, line 2: expected `target <name>`"},
      {"numerics traced", "numerics loose", "kernel spec, line 3: expected `numerics traced`"},
      {"schedule row", "schedule tile",
       "kernel spec, line 4: expected `schedule flat|row|column|turned threads=...` and the other settings"},
      {"schedule row", "schedule column",
       "kernel spec: program sample is scheduled by columns, expected sums over rows and no reductions"},
      {"schedule row", "schedule turned",
       "kernel spec: program sample is scheduled by turned tiles, expected elementwise work and powers of two of "
       "threads, of a row no more than there are rows"},
      {"threads=256", "threads=250", "kernel spec, line 4: threads is 250, expected a multiple of 32 up to 1024"},
      {"vector=8", "vector=x", "kernel spec, line 4: expected `vector=<number>`, given `vector=x`"},
      {"vector=8", "vector=3", "kernel spec, line 4: vector is 3, expected 1, 2, 4, 8 or 16"},
      {"threads_per_row=32", "threads_per_row=48",
       "kernel spec, line 4: threads_per_row is 48, expected a divisor of threads (256)"},
      {"threads=256 threads_per_row=32", "threads=96 threads_per_row=6",
       "kernel spec: threads_per_row is 6 of a program that reduces, expected a power of two or threads (96) itself"},
      {"program sample 96", "program sample", "kernel spec: line 1: expected `program <name> <columns>`"}};
  for (const Refusal& refusal : refusals) {
    KernelSpec spec;
    EXPECT_EQ(parse(replaced(print(sampleSpec()), refusal.from, refusal.to), spec), refusal.message) << refusal.to;
  }
}

} // namespace
