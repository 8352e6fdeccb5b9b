// Plans: what is right is read whole, what is wrong is refused with a reason and never crashes.
#include "runtime/Plan.h"
#include "tests/unit/runtime/Plans.h"
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
  EXPECT_EQ(plan->steps[1].accumulators, 1);
  EXPECT_EQ(plan->steps[1].foldEntry, "sum_rows_fold");
  EXPECT_EQ(plan->steps[1].rowRank, 2);
}

TEST(Plan, ASharedOperandRepeats) {
  Json text = scalePlan();
  text["values"][1]["dims"] = {"b", 8}; // one row of weights for each b, shared among a
  text["steps"][0]["operands"][1]["kind"] = "tile";
  const Result<Plan> plan = parsePlan(text.dump());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->steps[0].operands[1].axis[0], -1);
  EXPECT_EQ(plan->steps[0].operands[1].axis[1], 0);
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
      {"/values/1/kind", "buffer", "value 'y' is an output after a buffer"},
      {"/values/0/dims", {1, 2, 3, 4, 5, 6, 7, 8, 9}, "value 'x' needs a list of at most 8 dims"},
      {"/values/0/dims/0", -4, "value 'x' has dimension -4"},
      {"/values/2/dims/0", "c", "value 'y' has dimension 'c', which no input has"},
      {"/values/2/dims/0", 1, "output 'y' would be written by several rows"},
      {"/values/2/dims/0", 3, "the rows of 'y' are not those of its other operands"},
      {"/values/1/dims/0", 9, "the dimensions of 'weight' are not those of a column operand"},
      {"/values/0/dims/2", 9, "the dimensions of 'x' are not those of a tile operand"},
      {"/steps/0/kind", "loop", "a step has kind 'loop'"},
      {"/steps/0/skeleton", "warp", "kernel 'scale' has skeleton 'warp'"},
      {"/steps/0/columns", 0, "'columns' is 0, expected 1 to"},
      {"/steps/0/threads", 2048, "'threads' is 2048, expected 1 to 1024"},
      {"/steps/0/threads", 1.5, "'threads' is not an integer"},
      {"/steps/0/threads", uint64_t(1) << 63, "'threads' is not an integer"},
      {"/steps/0/vector", 3, "'vector' is 3, expected a power of two"},
      {"/steps/0/entries/scalar", "", "kernel 'scale' lacks an entry's name"},
      {"/steps/0/entries/fold", "fold", "kernel 'scale' lacks an entry's name"},
      {"/steps/0/operands", Json::array(), "kernel 'scale' has 0 operands, expected 1 to 16"},
      {"/steps/0/operands/0/value", 3, "'value' is 3, expected 0 to 2"},
      {"/steps/0/operands/0/value", -1, "'value' is -1, expected 0 to 2"},
      {"/steps/0/operands/0/kind", "cube", "operand 'x' has kind 'cube'"},
      {"/steps/0/operands/0/dtype", "bf16", "operand 'x' is \"bf16\", the value f32"},
      {"/steps/0/operands/0/output", true, "kernel 'scale' writes input 'x'"},
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
  const Json whole = sumPlan();
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

TEST(Plan, GarbageIsRefused) {
  std::mt19937 random(3);
  const std::string whole = sumPlan().dump();
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
