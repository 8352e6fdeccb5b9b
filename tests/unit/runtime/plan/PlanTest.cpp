// Plans: what is right is read whole, what is wrong is refused with a reason and never crashes.
#include "runtime/plan/Plan.h"
#include "runtime/abi/ElementType.h"
#include "tests/unit/runtime/Plans.h"
#include <functional>
#include <gtest/gtest.h>
#include <random>

namespace cermet {
namespace {

TEST(Plan, IsReadWhole) {
  const Result<Plan> plan = parsePlan(sumPlan("host:x86-64-v3").dump());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->name, "sum");
  EXPECT_EQ(plan->target, "host:x86-64-v3");
  EXPECT_EQ(plan->inputs, 2);
  EXPECT_EQ(plan->outputs, 1);
  EXPECT_EQ(plan->symbols, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(plan->values.size(), 4u);
  EXPECT_EQ(plan->values[0].dims[1], (Dimension{-1, 1}));
  EXPECT_EQ(plan->values[0].dims[2], (Dimension{8, -1}));
  ASSERT_EQ(plan->steps.size(), 2u);
  EXPECT_EQ(plan->steps[1].programs[0].accumulators, 1);
  EXPECT_EQ(plan->steps[1].foldEntry, "sum_rows_fold");
  EXPECT_EQ(plan->steps[1].programs[0].rowRank, 2);
}

TEST(Plan, ProgramsSideBySideAreRead) {
  const Result<Plan> plan = parsePlan(besidePlan().dump());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const PlanStep& step = plan->steps[0];
  ASSERT_EQ(step.programs.size(), 2u);
  EXPECT_EQ(step.threads, 64);
  EXPECT_EQ(step.programs[0].rowRank, 2);
  EXPECT_EQ(step.programs[1].rowRank, 1);
  EXPECT_EQ(step.programs[1].rowsPerBlock, 4);
  EXPECT_EQ(step.programs[1].operands[2].value, 4);
  EXPECT_EQ(step.programs[1].leading, 1) << "of x and y, the column between them walks no rows";
}

TEST(Plan, WhatIsWrongWithProgramsSideBySideIsNamed) {
  const auto refused = [](const std::function<void(Json&)>& change) {
    Json text = besidePlan();
    change(text["steps"][0]["programs"]);
    return parsePlan(text.dump()).status().message();
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refused([](Json& programs) { programs.erase(1); }), "kernel 'beside' has 1 programs, expected 2 to 4");
  expect(refused([](Json& programs) {
           programs = Json::array({programs[0], programs[0], programs[0], programs[0], programs[0]});
         }),
         "kernel 'beside' has 5 programs, expected 2 to 4");
  expect(refused([](Json& programs) { programs[1]["blocks_per_sm"] = 2; }),
         "kernel 'beside' has several programs, of which one is persistent or sums over rows as others do not");
  expect(refused([](Json& programs) { programs[1].erase("operands"); }), "'operands' not found");
}

TEST(Plan, ASharedOperandRepeats) {
  Json text = scalePlan();
  text["values"][1]["dims"] = {"b", 8}; // one row of weights for each b, shared among a
  text["steps"][0]["operands"][1]["kind"] = "tile";
  const Result<Plan> plan = parsePlan(text.dump());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->steps[0].programs[0].operands[1].axis[0], -1);
  EXPECT_EQ(plan->steps[0].programs[0].operands[1].axis[1], 0);
}

struct Refusal {
  const char* pointer; // what is changed
  Json value;
  const char* message; // what must be in the message
};

TEST(Plan, WhatIsWrongIsNamed) {
  const Refusal refusals[] = {
      {"/format", "cermet.plan.2", "its format is 'cermet.plan.2', expected 'cermet.plan.1'"},
      {"/name", 7, "must be string"},
      {"/values/0/dtype", "f8", "value 'x' has kind 'input' and dtype \"f8\""},
      {"/values/1/kind", "buffer", "value 'y' of kind 'output' stands after one of kind 'buffer'"},
      {"/values/0/dims", {1, 2, 3, 4, 5, 6, 7, 8, 9}, "value 'x' needs a list of at most 8 dims"},
      {"/values/0/dims/0", -4, "value 'x' has dimension -4"},
      {"/values/2/dims/0", "c", "value 'y' has dimension 'c', which no input has"},
      {"/values/2/dims/0", 1, "output 'y' would be written by several rows"},
      {"/values/2/dims/0", 3, "the rows of 'y' are not those of its other operands"},
      {"/values/1/dims/0", 9, "the dimensions of 'weight' are not those of a column operand"},
      {"/values/0/dims/2", 9, "the dimensions of 'x' are not those of a tile operand"},
      {"/steps/0/kind", "loop", "a step has kind 'loop'"},
      {"/steps/0/skeleton", "warp", "kernel 'scale' has skeleton 'warp'"},
      {"/steps/0/accumulators", 1, "kernel 'scale' has 1 accumulators and 0 column outputs"},
      {"/steps/0/columns", 0, "'columns' is 0, expected 1 to"},
      {"/steps/0/threads", 2048, "'threads' is 2048, expected 1 to 1024"},
      {"/steps/0/threads", 1.5, "'threads' is not an integer"},
      {"/steps/0/threads", uint64_t(1) << 63, "'threads' is not an integer"},
      {"/steps/0/vector", 3, "'vector' is 3, expected a power of two"},
      {"/steps/0/entries/scalar", "", "kernel 'scale' lacks an entry's name"},
      {"/steps/0/entries/fold", "fold", "kernel 'scale' lacks an entry's name"},
      {"/steps/0/operands", Json::array(), "kernel 'scale' has 0 operands, expected 1 to 32"},
      {"/steps/0/operands/0/value", 3, "'value' is 3, expected 0 to 2"},
      {"/steps/0/operands/0/value", -1, "'value' is -1, expected 0 to 2"},
      {"/steps/0/operands/0/kind", "cube", "operand 'x' has kind 'cube'"},
      {"/steps/0/operands/0/dtype", "bf16", "operand 'x' is \"bf16\", the value f32"},
      {"/steps/0/operands/0/output", true, "'scale' writes input 'x'"},
      {"/steps/0/operands/2/kind", "column", "the dimensions of 'y' are not those of a column operand"},
  };
  for (const Refusal& refusal : refusals) {
    Json text = scalePlan();
    text[Json::json_pointer(refusal.pointer)] = refusal.value;
    const Result<Plan> plan = parsePlan(text.dump());
    ASSERT_FALSE(plan.ok()) << refusal.pointer << " " << refusal.value;
    EXPECT_EQ(plan.status().code(), CERMET_INTERNAL);
    EXPECT_NE(plan.status().message().find(refusal.message), std::string::npos)
        << refusal.pointer << ": " << plan.status().message();
  }
}

// x[a, b, 8], y, and v0 = a slice of x, v1 = a broadcast, v2 = a transpose of y, an index and a strided operand.
Json viewsPlan() {
  Json text = scalePlan();
  Json& values = text["values"];
  values[3] = {{"name", "v0"}, {"kind", "view"},  {"dtype", "f32"},     {"dims", {"a", "b", 4}},
               {"of", 0},      {"view", "slice"}, {"starts", {0, 0, 2}}};
  values[4] = {{"name", "v1"},          {"kind", "view"}, {"dtype", "f32"},
               {"dims", {"a", "b", 8}}, {"of", 1},        {"view", "broadcast"}};
  values[5] = {{"name", "v2"}, {"kind", "view"},      {"dtype", "f32"},          {"dims", {"b", "a", 8}},
               {"of", 2},      {"view", "transpose"}, {"permutation", {1, 0, 2}}};
  values[6] = {{"name", "v3"}, {"kind", "view"}, {"dtype", "f32"}, {"dims", {2, 4}}, {"of", 1}, {"view", "reshape"}};
  text["steps"][0]["operands"][1]["strided"] = true;
  text["steps"][0]["operands"].push_back({{"kind", "index"}, {"dims", {1}}, {"dtype", "i64"}, {"output", false}});
  return text;
}

TEST(Plan, ViewsIndicesAndStridesAreRead) {
  const Result<Plan> plan = parsePlan(viewsPlan().dump());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->firstView(), 3);
  ASSERT_EQ(plan->views.size(), 4u);
  EXPECT_EQ(plan->views[0].kind, ViewKind::Slice);
  EXPECT_EQ(plan->views[0].starts[2], 2);
  EXPECT_EQ(plan->views[1].kind, ViewKind::Broadcast);
  EXPECT_EQ(plan->views[1].root, 1);
  EXPECT_TRUE(plan->views[1].repeats);
  EXPECT_EQ(plan->views[2].permutation[0], 1);
  EXPECT_FALSE(plan->views[2].repeats);
  const std::vector<PlanOperand>& operands = plan->steps[0].programs[0].operands;
  EXPECT_EQ(operands[0].stepDim, -1);
  EXPECT_EQ(operands[1].stepDim, 0);
  EXPECT_EQ(operands[3].kind, OperandKind::Index);
  EXPECT_EQ(operands[3].axis[0], -1);
  EXPECT_EQ(operands[3].axis[1], 0);
}

TEST(Plan, WhatIsWrongWithAViewIsNamed) {
  const Refusal refusals[] = {
      {"/values/3/kind", "buffer", "view"}, // what is no view may have its fields; the control is below
      {"/values/3/of", 3, "view 'v0' is of 3, expected the number of a value before it"},
      {"/values/3/of", -1, "view 'v0' is of -1"},
      {"/values/3/of", "x", "view 'v0' is of \"x\""},
      {"/values/3/view", "diagonal", "view 'v0' is a 'diagonal', expected slice, transpose, reshape or broadcast"},
      {"/values/3/dtype", "bf16", "view 'v0' has dtype bf16, 'x' has f32"},
      {"/values/3/starts", {0, 0}, "view 'v0' has starts [0,0], expected 3 numbers from 0 to"},
      {"/values/3/starts", {0, 0, -1}, "view 'v0' has starts [0,0,-1]"},
      {"/values/3/starts", {0, 0, 1.5}, "view 'v0' has starts"},
      {"/values/3/starts", {0, 0, 5}, "view 'v0' is no slice of 'x': dimension 2 does not fit"},
      {"/values/3/dims", {"a", 4}, "view 'v0' has 2 dimensions, 'x' has 3"},
      {"/values/3/dims", {"a", "q", 4}, "value 'v0' has dimension 'q', which no input has"},
      {"/values/4/dims", {"a", "b", 9}, "view 'v1' is no broadcast of 'weight': dimension 2 does not fit"},
      {"/values/4/dims", Json::array(), "view 'v1' has 0 dimensions, 'weight' has 1"},
      {"/values/5/permutation", {1, 1, 2}, "view 'v2' is no transpose of 'y': dimension 1 does not fit"},
      {"/values/5/permutation", {0, 1, 3}, "view 'v2' has permutation [0,1,3], expected 3 numbers from 0 to 2"},
      {"/values/6/dims", {2, 5}, "view 'v3' has not the number of elements of 'weight'"},
      {"/steps/0/operands/2/value", 3, "'scale' writes 'v0', a view of input 'x'"},
      {"/steps/0/operands/2/value", 4, "'scale' writes 'v1', a view of input 'weight'"},
      {"/steps/0/operands/3/dims/0", 2, "kernel 'scale' has an index along a dimension beyond its 2 of rows"},
      {"/steps/0/operands/3/dims/0", -1, "index along dimension -1, expected one from 0 to 6"},
      {"/steps/0/operands/3/dims", Json::array(), "index along the dimensions [], expected a list of some"},
      {"/steps/0/operands/3/dtype", "i32", "kernel 'scale' has an index operand that is no i64 input"},
      {"/steps/0/operands/3/output", true, "kernel 'scale' has an index operand that is no i64 input"},
      {"/steps/0/operands/1/strided", 7, "must be boolean"},
  };
  for (const Refusal& refusal : refusals) {
    Json text = viewsPlan();
    text[Json::json_pointer(refusal.pointer)] = refusal.value;
    const Result<Plan> plan = parsePlan(text.dump());
    if (refusal.value == "buffer") {
      EXPECT_TRUE(plan.ok()) << plan.status().message();
      continue;
    }
    ASSERT_FALSE(plan.ok()) << refusal.pointer << " " << refusal.value;
    EXPECT_EQ(plan.status().code(), CERMET_INTERNAL);
    EXPECT_NE(plan.status().message().find(refusal.message), std::string::npos)
        << refusal.pointer << ": " << plan.status().message();
  }
  Json text = viewsPlan(); // square, so that only the permutation is wrong
  text["values"][2]["dims"] = text["values"][5]["dims"] = {"a", "a", 8};
  text["values"][0]["dims"] = {"a", "a", 8};
  text["values"][3]["dims"] = {"a", "a", 4};
  text["values"][4]["dims"] = {"a", "a", 8};
  ASSERT_TRUE(parsePlan(text.dump()).ok()) << parsePlan(text.dump()).status().message();
  text["values"][5]["permutation"] = {0, 0, 2};
  EXPECT_NE(parsePlan(text.dump()).status().message().find("view 'v2': [0,0,2] is no permutation"), std::string::npos);
}

TEST(Plan, GatheredRowsAreRead) {
  for (const char* index : {"i64", "i32", "i16", "i8", "u8"}) {
    const Result<Plan> plan = parsePlan(gatherPlan(index).dump());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const PlanProgram& program = plan->steps[0].programs[0];
    EXPECT_EQ(program.operands[0].kind, OperandKind::Gathered);
    EXPECT_EQ(program.operands[0].rowsFrom, 1);
    EXPECT_FALSE(program.operands[0].walksRows());
    EXPECT_TRUE(program.operands[0].movesVectors());
    EXPECT_EQ(program.operands[1].rowsFrom, -1);
    EXPECT_EQ(program.rowRank, 2);
  }
}

TEST(Plan, WhatIsWrongWithGatheredRowsIsNamed) {
  const char* const numbers = "expected a row input of integers";
  const Refusal refusals[] = {
      {"/steps/0/operands/0/rows", 0, numbers},
      {"/steps/0/operands/0/rows", 2, numbers},
      {"/steps/0/operands/0/rows", 3, "kernel 'gather': the rows of 'x' are those of operand 3, expected a row input"},
      {"/steps/0/operands/0/rows", 32, "'rows' is 32, expected 0 to 31"},
      {"/steps/0/operands/0/rows", "i", "'rows' is not an integer"},
      {"/values/0/dims", {2, "v", 8}, "the dimensions of 'x' are not those of a gathered operand"},
      {"/values/0/dims", {"v", 9}, "the dimensions of 'x' are not those of a gathered operand"},
      {"/values/0/dims", {8}, "the dimensions of 'x' are not those of a gathered operand"},
  };
  for (const Refusal& refusal : refusals) {
    Json text = gatherPlan();
    text[Json::json_pointer(refusal.pointer)] = refusal.value;
    const Result<Plan> plan = parsePlan(text.dump());
    ASSERT_FALSE(plan.ok()) << refusal.pointer << " " << refusal.value;
    EXPECT_NE(plan.status().message().find(refusal.message), std::string::npos)
        << refusal.pointer << ": " << plan.status().message();
  }
  EXPECT_NE(parsePlan(gatherPlan("f32").dump()).status().message().find(numbers), std::string::npos);
  Json text = gatherPlan();
  text["steps"][0]["operands"][0].erase("rows");
  EXPECT_NE(parsePlan(text.dump()).status().message().find("rows"), std::string::npos);
  text = gatherPlan();
  text["steps"][0]["operands"][2].update({{"kind", "gathered"}, {"rows", 1}});
  text["values"][2]["dims"] = {"v", 8};
  EXPECT_NE(parsePlan(text.dump()).status().message().find("output 'y' is gathered, expected an input"),
            std::string::npos);
}

TEST(Plan, SumsOfGatheredRowsAreRead) {
  const Result<Plan> plan = parsePlan(bagPlan().dump());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const PlanProgram& program = plan->steps[0].programs[0];
  EXPECT_EQ(program.operands[0].kind, OperandKind::List);
  EXPECT_FALSE(program.operands[0].walksRows() || program.operands[0].movesVectors());
  EXPECT_EQ(program.operands[3].from, 1);
  EXPECT_EQ(program.operands[3].to, 2);
  EXPECT_EQ(program.operands[3].sums, 4);
  EXPECT_TRUE(program.operands[4].isTable && program.operands[4].movesVectors());
  EXPECT_EQ(program.rowRank, 1);
}

TEST(Plan, WhatIsWrongWithSumsOfGatheredRowsIsNamed) {
  const Refusal refusals[] = {
      {"/steps/0/operands/3/rows", 1, "the rows of 'x' are those of operand 1, expected a list input of integers"},
      {"/steps/0/operands/3/from", 0, "the rows of 'x' are from operand 0 to 2, expected row inputs of integers"},
      {"/steps/0/operands/3/to", 9, "the rows of 'x' are from operand 1 to 9, expected row inputs of integers"},
      {"/steps/0/operands/3/to", -1, "'to' is -1, expected 0 to 31"},
      {"/steps/0/operands/3/sums", 0, "the sums of the rows of 'x' are operand 0, expected a list of f32"},
      {"/steps/0/operands/3/rows", 4, "the rows of 'x' are those of operand 4, expected a list input of integers"},
      {"/values/1/dims", {"m", 1}, "the dimensions of 'i' are not those of a list operand"},
      {"/steps/0/operands/0/strided", true, "operand 'i' is strided and a list, expected a tile"},
      {"/steps/0/operands/5/kind", "list", "output 'y' is list, expected an input"},
  };
  for (const Refusal& refusal : refusals) {
    Json text = bagPlan();
    text[Json::json_pointer(refusal.pointer)] = refusal.value;
    const Result<Plan> plan = parsePlan(text.dump());
    ASSERT_FALSE(plan.ok()) << refusal.pointer << " " << refusal.value;
    EXPECT_NE(plan.status().message().find(refusal.message), std::string::npos)
        << refusal.pointer << ": " << plan.status().message();
  }
  Json text = bagPlan();
  text["steps"][0]["operands"][3].erase("to");
  EXPECT_NE(parsePlan(text.dump()).status().message().find("to"), std::string::npos);
}

TEST(Plan, NothingIsWrittenThroughARepeat) {
  Json text = viewsPlan();
  text["values"][4].update({{"of", 2}, {"dims", {"a", "b", 8}}}); // a broadcast of y that repeats nothing by its sizes
  text["steps"][0]["operands"][2]["value"] = 4;
  EXPECT_NE(parsePlan(text.dump()).status().message().find("'scale' writes 'v1', whose elements repeat"),
            std::string::npos);
  text = viewsPlan();
  text["steps"][1] = {{"kind", "external"}, {"op", "copy"}, {"operands", {1}}, {"results", {6}}};
  EXPECT_NE(parsePlan(text.dump()).status().message().find("'copy' writes 'v3', a view of input 'weight'"),
            std::string::npos);
  text["steps"][1]["results"] = {0};
  EXPECT_NE(parsePlan(text.dump()).status().message().find("'copy' writes input 'x'"), std::string::npos);
  text["steps"][1]["results"] = {5};
  EXPECT_TRUE(parsePlan(text.dump()).ok());
}

TEST(Plan, OnlyColumnsAreStrided) {
  Json text = scalePlan();
  text["values"][1]["dims"] = {1};
  text["steps"][0]["operands"][1]["kind"] = "scalar";
  ASSERT_TRUE(parsePlan(text.dump()).ok());
  text["steps"][0]["operands"][1]["strided"] = true;
  EXPECT_NE(parsePlan(text.dump())
                .status()
                .message()
                .find("operand 'weight' is strided and a scalar, expected a tile, a column or gathered rows"),
            std::string::npos);
}

// Row dimensions, from the left, of x and a second tile; the space they span; -1: refused.
TEST(Plan, RowsOfAllOperandsBroadcast) {
  struct Case {
    Json x, other;
    std::vector<int64_t> space; // -1: symbolic
    std::vector<int> otherAxis;
  };
  const Case cases[] = {
      {{"r0", "r1", 8}, {1, "r1", 8}, {-1, -1}, {-1, 1}},
      {{"r0", "r1", 8}, {"r0", 1, 8}, {-1, -1}, {0, -1}},
      {{"r0", "r1", 8}, {"r1", 8}, {-1, -1}, {-1, 0}},
      {{"r0", "r1", 8}, {8}, {-1, -1}, {-1, -1}},
      {{"r0", 1, 8}, {1, 5, 8}, {-1, 5}, {-1, 1}},
      {{"r0", 1, "r2", 8}, {"r1", 1, 8}, {-1, -1, -1}, {-1, 0, -1}},
      {{1, "r2", 8}, {"r0", 1, 1, 8}, {-1, 1, -1}, {0, 1, -1}},
      {{1, 1, 8}, {1, 8}, {1, 1}, {-1, 0}},
      {{8}, {8}, {}, {}},
      {{4, 8}, {5, 8}, {-2}, {}},
      {{"r0", 8}, {"r1", 8}, {-2}, {}},
  };
  for (const Case& one : cases) {
    Json text = scalePlan();
    text["values"][0]["dims"] = one.x;
    text["values"][1]["dims"] = one.other;
    text["values"][3] = {{"name", "sizes"}, {"kind", "input"}, {"dtype", "f32"}, {"dims", {"r0", "r1", "r2"}}};
    std::swap(text["values"][2], text["values"][3]);
    Json output = Json::array();
    for (size_t dim = 0; dim < one.space.size(); ++dim)
      output.push_back(one.space[dim] == -1 ? Json(fmt::format("r{}", dim)) : Json(one.space[dim]));
    output.push_back(8);
    if (one.space == std::vector<int64_t>{-2})
      output = one.x;
    text["values"][3]["dims"] = output;
    text["steps"][0]["operands"][1]["kind"] = "tile";
    text["steps"][0]["operands"][2]["value"] = 3;
    const Result<Plan> plan = parsePlan(text.dump());
    if (one.space == std::vector<int64_t>{-2}) {
      EXPECT_NE(plan.status().message().find("are not those of its other operands"), std::string::npos) << one.x;
      continue;
    }
    ASSERT_TRUE(plan.ok()) << one.x << one.other << plan.status().message();
    const PlanProgram& program = plan->steps[0].programs[0];
    ASSERT_EQ(program.rowRank, static_cast<int>(one.space.size()));
    for (int dim = 0; dim < program.rowRank; ++dim) {
      EXPECT_EQ(program.rowSpace[dim].size, one.space[dim]) << one.x << one.other;
      EXPECT_EQ(program.operands[1].axis[dim], one.otherAxis[dim]) << one.x << one.other;
    }
  }
}

TEST(Plan, EveryElementTypeMayBeAnOperand) {
  for (const ElementType& type : kElementTypes) {
    Json text = scalePlan();
    for (int value = 0; value < 3; ++value)
      text["values"][value]["dtype"] = text["steps"][0]["operands"][value]["dtype"] = type.name;
    EXPECT_TRUE(parsePlan(text.dump()).ok()) << type.name;
  }
}

TEST(Plan, AnOpaqueStepHasItsOwnName) {
  Json text = scalePlan();
  text["steps"][1] = {{"kind", "external"},
                      {"op", "cermet.opaque"},
                      {"operands", {0}},
                      {"results", {2}},
                      {"attributes", {{"target", "aten.sdpa"}}}};
  EXPECT_EQ(parsePlan(text.dump())->steps[1].name, "aten.sdpa");
  text["steps"][1]["attributes"] = {{"transpose_rhs", true}};
  EXPECT_EQ(parsePlan(text.dump())->steps[1].name, "cermet.opaque");
  text["steps"][1]["attributes"] = 7;
  (void)parsePlan(text.dump()).ok(); // must return
}

TEST(Plan, AColumnOutputNeedsAnAccumulator) {
  Json text = sumPlan();
  text["steps"][1]["accumulators"] = 2;
  EXPECT_NE(parsePlan(text.dump()).status().message().find("has 2 accumulators and 1 column outputs"),
            std::string::npos);
}

// Every part of a plan removed, or replaced by something of another kind.
void forEachPart(const Json& whole, const Json::json_pointer& at,
                 const std::function<void(const Json::json_pointer&)>& use) {
  const Json& part = whole[at];
  use(at);
  if (part.is_object())
    for (const auto& item : part.items())
      forEachPart(whole, at / item.key(), use);
  if (part.is_array())
    for (size_t index = 0; index < part.size(); ++index)
      forEachPart(whole, at / index, use);
}

TEST(Plan, NoPartMayBeAnything) {
  for (const Json& whole : {sumPlan(), viewsPlan(), gatherPlan(), bagPlan()}) {
    const Json others[] = {nullptr,       true,           -1,     1e300, uint64_t(-1), "",   "\xf0\x9f\x98\x80",
                           Json::array(), Json::object(), {{{}}}, 4096,  INT64_MIN,    1024, std::string(100000, 'x')};
    int refused = 0;
    forEachPart(whole, Json::json_pointer(), [&](const Json::json_pointer& at) {
      for (const Json& other : others) {
        Json changed = whole;
        changed[at] = other;
        refused += !parsePlan(changed.dump()).ok(); // must return
      }
      if (at.empty())
        return;
      Json changed = whole;
      Json& parent = changed[at.parent_pointer()];
      if (parent.is_object())
        parent.erase(at.back());
      else
        parent.erase(static_cast<size_t>(std::stoul(at.back())));
      refused += !parsePlan(changed.dump()).ok();
    });
    EXPECT_GT(refused, 500);
  }
}

TEST(Plan, GarbageIsRefused) {
  std::mt19937 random(3);
  const std::string whole = viewsPlan().dump();
  for (size_t size = 0; size < whole.size(); size += 7)
    EXPECT_FALSE(parsePlan(whole.substr(0, size)).ok());
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = whole;
    for (unsigned count = random() % 4 + 1; count-- > 0;)
      text[random() % text.size()] = static_cast<char>(random());
    (void)parsePlan(text).ok(); // must return
  }
  EXPECT_FALSE(parsePlan(std::string(100000, '[')).ok());
  EXPECT_FALSE(parsePlan("").ok());
}

} // namespace
} // namespace cermet
