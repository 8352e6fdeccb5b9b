// What a plan says: one kernel where one is enough, otherwise steps with buffers between them, in an order that works.
#include "compiler/plan/Plan.h"
#include "compiler/program/Dump.h"
#include "compiler/program/KernelSpec.h"
#include "runtime/abi/RowArguments.h"
#include "tests/unit/compiler/GraphTexts.h"
#include "tests/unit/compiler/plan/Plans.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

using namespace cermet;
using namespace cermet::tests;
using nlohmann::json;

namespace {

// What a view is a view of.
int rootOf(const json& plan, int value) {
  while (plan["values"][value]["kind"] == "view")
    value = plan["values"][value]["of"];
  return value;
}

// Every step reads what is an input or was written by an earlier step; every output is written, and nothing twice.
void checkOrder(const json& plan) {
  std::set<int> written, whole;
  const json& values = plan["values"];
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i]["kind"] == "input")
      written.insert(static_cast<int>(i));
  for (const json& step : plan["steps"]) {
    std::vector<int> reads, writes;
    if (step["kind"] == "kernel") {
      for (const json& program : step.contains("programs") ? step["programs"] : json::array({step}))
        for (const json& operand : program["operands"])
          if (operand.contains("value"))
            (operand["output"].get<bool>() ? writes : reads).push_back(operand["value"]);
    } else {
      reads = step["operands"].get<std::vector<int>>();
      writes = step["results"].get<std::vector<int>>();
    }
    for (int value : reads)
      EXPECT_TRUE(written.contains(rootOf(plan, value))) << step["name"] << " reads " << values[value];
    for (int value : writes) {
      EXPECT_TRUE(whole.insert(value).second) << step << " writes " << values[value] << " again";
      written.insert(rootOf(plan, value));
    }
  }
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(written.contains(rootOf(plan, static_cast<int>(i)))) << values[i] << " is never written";
}

TEST(Plan, OneKernelForOneNorm) {
  json plan = planOf(addRmsNorm({"r0", "r1", "4096"}, "bf16", "bf16", "bf16", "eps = 1.0e-6"));
  checkOrder(plan);
  EXPECT_EQ(plan["format"], "cermet.plan.1");
  EXPECT_EQ(plan["name"], "add_rms_norm");
  ASSERT_EQ(plan["steps"].size(), 1u);
  const json& step = plan["steps"][0];
  EXPECT_EQ(step["skeleton"], "row");
  EXPECT_EQ(step["columns"], 4096);
  EXPECT_EQ(step["accumulators"], 0);
  EXPECT_EQ(step["entries"]["fold"], "");
  EXPECT_EQ(plan["values"][0],
            json::parse(R"({"name": "x", "kind": "input", "dtype": "bf16", "dims": ["r0", "r1", 4096]})"));
  KernelSpec spec;
  ASSERT_EQ(parse(step["spec"], spec), "");
  EXPECT_EQ(json(print(spec)), step["spec"]);
  EXPECT_EQ(spec.target, "sm_90");
  EXPECT_EQ(step["threads"], spec.programs[0].schedule.threads);
  EXPECT_EQ(step["rows_per_block"], spec.programs[0].schedule.threads / spec.programs[0].schedule.threadsPerRow);
}

TEST(Plan, ElementwiseWorkIsFlat) {
  json plan = planOf(glu({"r0", "14336"}, "bf16"));
  ASSERT_EQ(plan["steps"].size(), 1u);
  EXPECT_EQ(plan["steps"][0]["skeleton"], "flat");
  EXPECT_EQ(plan["steps"][0]["vector"], 8);
}

TEST(Plan, AFrontendsSmallOperationsAreFusedAndReported) {
  std::string t = tensor({"r0", "64"}, "bf16");
  json plan = planOf(graph("f", "%gate: " + t + ", %up: " + t, t,
                           "    %s = cermet.silu %gate : " + t + " loc(\"silu\")\n    %m = cermet.mul %s, %up : " + t +
                               " loc(\"mul\")\n    return %m : " + t + "\n"));
  ASSERT_EQ(plan["regions"].size(), 1u);
  EXPECT_EQ(plan["regions"][0]["pattern"], "glu");
  EXPECT_EQ(plan["regions"][0]["results"], json({"mul"}));
  EXPECT_EQ(plan["values"][2]["name"], "mul");
}

// norm, matmul, glu of its result: three steps, two of them kernels.
std::string block() {
  std::string x = tensor({"r0", "64"}, "bf16"), w = tensor({"64"}, "bf16"), m = tensor({"64", "64"}, "bf16");
  return graph("block", "%x: " + x + ", %w: " + w + ", %m: " + m, x,
               "    %n = cermet.rms_norm %x, %w {eps = 1.0e-6} : " + x + ", " + w + " to " + x +
                   "\n    %h = cermet.matmul %n, %m {transpose_rhs} : " + x + ", " + m + " to " + x +
                   "\n    %g = cermet.glu %h, %x : " + x + "\n    return %g : " + x + "\n");
}

TEST(Plan, AMatmulSplitsItIntoSteps) {
  json plan = planOf(block());
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 3u);
  EXPECT_EQ(plan["steps"][0]["name"], "rms_norm");
  EXPECT_EQ(plan["steps"][1]["kind"], "external");
  EXPECT_EQ(plan["steps"][1]["op"], "cermet.matmul");
  EXPECT_EQ(plan["steps"][1]["attributes"], json({{"transpose_rhs", true}}));
  EXPECT_EQ(plan["steps"][1]["line"], 4);
  EXPECT_EQ(plan["steps"][2]["name"], "glu");
  EXPECT_EQ(plan["values"].size(), 6u); // three inputs, one output, two buffers
  EXPECT_EQ(plan["values"][4]["kind"], "buffer");
  EXPECT_EQ(plan["values"][4]["dims"], json({"r0", 64}));
}

TEST(Plan, EqualStepsShareAKernel) {
  std::string x = tensor({"r0", "64"}, "bf16"), w = tensor({"64"}, "bf16"), m = tensor({"64", "64"}, "bf16");
  json plan = planOf(graph("two", "%x: " + x + ", %w1: " + w + ", %w2: " + w + ", %m: " + m, x,
                           "    %a = cermet.rms_norm %x, %w1 {eps = 1.0e-6} : " + x + ", " + w + " to " + x +
                               " loc(\"first\")\n    %h = cermet.matmul %a, %m : " + x + ", " + m + " to " + x +
                               "\n    %b = cermet.rms_norm %h, %w2 {eps = 1.0e-6} : " + x + ", " + w + " to " + x +
                               " loc(\"second\")\n    return %b : " + x + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 3u);
  EXPECT_EQ(plan["steps"][0]["spec"], plan["steps"][2]["spec"]);
}

// `q` of 32 and `k` of 8 heads by a factor that they share, and what else the body does.
std::string heads(const std::string& type, const std::string& results, const std::string& body) {
  std::string q = tensor({"b", "32", "s", "128"}, type), k = tensor({"b", "8", "s", "128"}, type),
              c = tensor({"b", "1", "s", "128"}, type), w = tensor({"128"}, type);
  std::string text =
      graph("heads", "%q: {q}, %k: {k}, %c: {c}, %wq: {w}, %wk: {w}", results,
            "    %cq = cermet.broadcast %c : {c} to {q}\n    %ck = cermet.broadcast %c : {c} to {k}\n" + body);
  const std::pair<const char*, std::string> names[] = {{"{q}", q}, {"{k}", k}, {"{c}", c}, {"{w}", w}};
  for (const auto& [name, meaning] : names)
    for (size_t at; (at = text.find(name)) != std::string::npos;)
      text.replace(at, 3, meaning);
  return text;
}

TEST(Plan, KernelsThatShareARowStandSideBySide) {
  for (const std::string target : {"sm_80", "sm_90", "host:x86-64-v3"}) {
    json plan = planOf(heads("bf16", "{q}, {k}",
                             "    %0 = cermet.mul %q, %cq : {q}\n    %1 = cermet.mul %k, %ck : {k}\n"
                             "    return %0, %1 : {q}, {k}\n"),
                       target);
    ASSERT_EQ(plan["steps"].size(), 1u) << target;
    const json& step = plan["steps"][0];
    EXPECT_FALSE(step.contains("operands"));
    ASSERT_EQ(step["programs"].size(), 2u);
    EXPECT_EQ(step["operations"], 2);
    EXPECT_EQ(step["programs"][0]["operands"][1]["value"], step["programs"][1]["operands"][1]["value"]);
    KernelSpec spec;
    ASSERT_EQ(parse(step["spec"], spec), "");
    ASSERT_EQ(spec.programs.size(), 2u);
    EXPECT_EQ(step["threads"], spec.programs[0].schedule.threads);
    checkOrder(plan);
  }
}

TEST(Plan, NormsOfRowsOfTheirOwnStandSideBySide) {
  json plan = planOf(heads("f32", "{q}, {k}",
                           "    %0 = cermet.rms_norm %q, %wq {eps = 1.0e-6} : {q}, {w} to {q}\n"
                           "    %1 = cermet.mul %0, %cq : {q}\n"
                           "    %2 = cermet.rms_norm %k, %wk {eps = 1.0e-6} : {k}, {w} to {k}\n"
                           "    %3 = cermet.mul %2, %ck : {k}\n    return %1, %3 : {q}, {k}\n"));
  ASSERT_EQ(plan["steps"].size(), 1u);
  const json& step = plan["steps"][0];
  ASSERT_EQ(step["programs"].size(), 2u);
  EXPECT_EQ(step["programs"][0]["skeleton"], "row");
  EXPECT_EQ(step["entries"]["fold"], "");
  checkOrder(plan);
}

TEST(Plan, WhatDependsOrSharesNothingStaysApart) {
  struct Case {
    const char* results;
    const char* body;
    size_t steps;
  };
  const Case cases[] = {
      // One weight is shared.
      {"{q}, {k}",
       "    %0 = cermet.rms_norm %q, %wq {eps = 1.0e-6} : {q}, {w} to {q}\n"
       "    %1 = cermet.rms_norm %k, %wq {eps = 1.0e-6} : {k}, {w} to {k}\n    return %0, %1 : {q}, {k}\n",
       2},
      // A stream and rows that are kept.
      {"{q}, {k}",
       "    %0 = cermet.mul %q, %cq : {q}\n    %1 = cermet.rms_norm %k, %wk {eps = 1.0e-6} : {k}, {w} to {k}\n"
       "    %2 = cermet.mul %1, %ck : {k}\n    return %0, %2 : {q}, {k}\n",
       2},
      // The sum over a weight's rows.
      {"{q}, {k}, {w}",
       "    %0 = cermet.mul %q, %cq : {q}\n    %1 = cermet.mul %k, %ck : {k}\n"
       "    %2 = cermet.sum_rows %1 : {k} to {w}\n    return %0, %1, %2 : {q}, {k}, {w}\n",
       2},
      // The second reads what an external step makes of the first.
      {"{q}, {k}",
       "    %0 = cermet.mul %q, %cq : {q}\n"
       "    %1 = cermet.opaque \"aten.slice\"(%0) : ({q}) -> {k}\n"
       "    %2 = cermet.mul %1, %ck : {k}\n    return %0, %2 : {q}, {k}\n",
       3}};
  for (const Case& one : cases) {
    json plan = planOf(heads("f32", one.results, one.body));
    EXPECT_EQ(plan["steps"].size(), one.steps) << one.body;
    for (const json& step : plan["steps"])
      EXPECT_FALSE(step.contains("programs")) << one.body;
    checkOrder(plan);
  }
}

TEST(Plan, ConstantsAndBroadcastsAreRepeatedNotStored) {
  std::string x = tensor({"r0", "64"}, "f32"), w = tensor({"64"}, "f32"), m = tensor({"64", "64"}, "f32");
  json plan =
      planOf(graph("f", "%x: " + x + ", %w: " + w + ", %m: " + m, x,
                   "    %c = cermet.constant 2.0 : " + x + "\n    %b = cermet.broadcast %w : " + w + " to " + x +
                       "\n    %s = cermet.mul %x, %c : " + x + "\n    %h = cermet.matmul %s, %m : " + x + ", " + m +
                       " to " + x + "\n    %r = cermet.add %h, %b : " + x + "\n    return %r : " + x + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 3u);
  EXPECT_EQ(plan["steps"][2]["operands"][1]["kind"], "column");
}

TEST(Plan, ABroadcastThatAMatmulReadsIsStored) {
  std::string x = tensor({"r0", "64"}, "f32"), w = tensor({"64"}, "f32"), m = tensor({"64", "64"}, "f32");
  json plan = planOf(graph("f", "%x: " + x + ", %w: " + w + ", %m: " + m, x + ", " + x,
                           "    %b = cermet.broadcast %w : " + w + " to " + x +
                               "\n    %h = cermet.matmul %b, %m : " + x + ", " + m + " to " + x +
                               "\n    %r = cermet.add %h, %x : " + x + "\n    return %r, %b : " + x + ", " + x + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 3u);
  EXPECT_EQ(plan["steps"][0]["name"], "copy");
}

TEST(Plan, ReturnedInputsAndValuesReturnedTwiceAreCopied) {
  std::string x = tensor({"r0", "64"}, "f32"), m = tensor({"64", "64"}, "f32"), odd = tensor({"n"}, "f64");
  json plan = planOf(graph("f", "%x: " + x + ", %m: " + m + ", %i: " + odd, x + ", " + x + ", " + x + ", " + odd,
                           "    %h = cermet.matmul %x, %m : " + x + ", " + m + " to " + x +
                               "\n    return %h, %h, %x, %i : " + x + ", " + x + ", " + x + ", " + odd + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 4u);
  EXPECT_EQ(plan["steps"][1]["name"], "copy");
  EXPECT_EQ(plan["steps"][2]["name"], "copy");
  EXPECT_EQ(plan["steps"][3]["op"], "cermet.copy");
}

// Channels by themselves, scaled by a number for each few of them, which is one for each row.
TEST(Plan, WhatIsComputedInColumnsThatAResultSplitsIsStoredThere) {
  const std::string x = tensor({"r0", "12", "5", "7"}, "f32"), apart = tensor({"r0", "3", "4", "35"}, "f32"),
                    row = tensor({"r0", "3", "1", "1"}, "f32");
  const json plan = planOf(graph("f", "%x: " + x + ", %s: " + row, x,
                                 "    %a = cermet.reshape %x : " + x + " to " + apart +
                                     "\n    %b = cermet.broadcast %s : " + row + " to " + apart +
                                     "\n    %m = cermet.mul %a, %b : " + apart + "\n    %y = cermet.reshape %m : " +
                                     apart + " to " + x + "\n    return %y : " + x + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 1u) << plan["steps"];
  EXPECT_EQ(plan["steps"][0]["columns"], 35);
  EXPECT_EQ(plan["values"][2]["together"], json({{2, 3}})) << plan["values"];
}

TEST(Plan, WhatNoKernelTakesIsExternalWithTheReason) {
  std::string x = tensor({"r0", "64"}, "f64"), w = tensor({"64"}, "f64"), y = tensor({"n", "64"}, "f64");
  json plan = planOf(graph("f", "%x: " + x + ", %w: " + w + ", %size: " + y, y,
                           "    %n = cermet.rms_norm %x, %w {eps = 1.0e-6} : " + x + ", " + w + " to " + x +
                               "\n    %o = cermet.opaque \"aten.sort\"(%n) {dim = -1 : i64} : (" + x + ") -> " + x +
                               "\n    %r = cermet.reshape %o : " + x + " to " + y + "\n    return %r : " + y + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 2u);
  EXPECT_EQ(plan["steps"][0]["op"], "cermet.rms_norm");
  EXPECT_EQ(plan["steps"][0]["reason"], "kernels have no values of f64");
  EXPECT_EQ(plan["steps"][1]["op"], "cermet.opaque");
  EXPECT_EQ(plan["steps"][1]["attributes"]["target"], "aten.sort");
  EXPECT_EQ(plan["steps"][1]["attributes"]["dim"], -1);
  EXPECT_FALSE(plan["steps"][1].contains("reason"));
  EXPECT_EQ(plan["values"].back()["view"], "reshape"); // of the output, where the last step writes
}

// A model's first step: rows of the table, scaled, and their norm, with the numbers of rows as the kernel's own column.
TEST(Plan, AnEmbeddingAndItsNormAreOneKernel) {
  json plan = planOf(embeddingNorm("i64"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 1u);
  const json& operands = plan["steps"][0]["operands"];
  ASSERT_EQ(operands.size(), 5u);
  EXPECT_EQ(operands[2]["kind"], "gathered");
  EXPECT_EQ(operands[2]["value"], 0);
  EXPECT_EQ(operands[2]["rows"], 1);
  EXPECT_EQ(operands[1]["kind"], "row");
  const json& numbers = plan["values"][operands[1]["value"].get<int>()];
  EXPECT_EQ(numbers["of"], 1);
  EXPECT_EQ(numbers["view"], "reshape");
  EXPECT_EQ(numbers["dims"], json({"b", "s", 1}));
}

// It reads memory: what is computed for it is stored first, even what others repeat.
TEST(Plan, AGatherReadsWhatIsStored) {
  std::string table = tensor({"v", "8"}, "bf16"), wide = tensor({"v", "8"}, "f32"), ids = tensor({"r0"}, "i32"),
              x = tensor({"r0", "8"}, "f32");
  json plan = planOf(graph("f", "%t: " + table + ", %i: " + ids, x,
                           "    %one = cermet.constant 1.0 : " + ids + "\n    %n = cermet.add %i, %one : " + ids +
                               "\n    %m = cermet.neg %t : " + table + "\n    %w = cermet.cast %m : " + table + " to " +
                               wide + "\n    %e = cermet.gather %w, %n : " + wide + ", " + ids + " to " + x +
                               "\n    %y = cermet.exp %e : " + x + "\n    return %y : " + x + "\n"));
  checkOrder(plan);
  for (const json& step : plan["steps"])
    EXPECT_EQ(step["kind"], "kernel") << step;
  const json& last = plan["steps"].back();
  EXPECT_EQ(last["name"], "gather_exp");
  for (const json& operand : last["operands"])
    if (operand["kind"] == "gathered") {
      EXPECT_EQ(plan["values"][operand["value"].get<int>()]["dtype"], "f32");
    }
}

// The buffer that is gathered from is written by a step of its own, behind the one that computes what is in it.
TEST(Plan, NoKernelGathersFromWhatItComputes) {
  std::string table = tensor({"16", "8"}, "bf16"), wide = tensor({"16", "8"}, "f32"), ids = tensor({"16"}, "i32");
  json plan =
      planOf(graph("f", "%t: " + table + ", %i: " + ids, wide + ", " + table,
                   "    %m = cermet.neg %t : " + table + "\n    %w = cermet.cast %m : " + table + " to " + wide +
                       "\n    %e = cermet.gather %w, %i : " + wide + ", " + ids + " to " + wide +
                       "\n    %y = cermet.exp %e : " + wide + "\n    return %y, %m : " + wide + ", " + table + "\n"));
  checkOrder(plan);
}

// As many operands as a kernel takes, and one more, which is grouped anew.
TEST(Plan, AKernelHasSoManyOperands) {
  for (int inputs : {kMaxOperands - 1, kMaxOperands}) {
    std::string x = tensor({"r0", "64"}, "f32"), arguments = "%a0: " + x, sum = "%a0", body;
    for (int i = 1; i < inputs; ++i) {
      arguments += fmt::format(", %a{}: {}", i, x);
      body += fmt::format("    %s{0} = cermet.add {1}, %a{0} : {2}\n", i, sum, x);
      sum = fmt::format("%s{}", i);
    }
    json plan = planOf(graph("f", arguments, x, body + "    return " + sum + " : " + x + "\n"));
    checkOrder(plan);
    EXPECT_EQ(plan["steps"].size() > 1, inputs == kMaxOperands);
    if (inputs < kMaxOperands) {
      EXPECT_EQ(plan["steps"][0]["operands"].size(), size_t(kMaxOperands));
    }
  }
}

// A mixture of experts: eight rows for each token, weighted and summed, beside a residual. Twenty-six operands are five
// tensors, and one kernel.
TEST(Plan, ASumOfChosenRowsIsOneKernel) {
  const std::string rows = tensor({"s", "64"}, "bf16"), places = tensor({"t", "8"}, "i64");
  const std::string r = tensor({"t", "64"}, "bf16"), weights = tensor({"t", "8", "1"}, "bf16");
  const std::string all = tensor({"t", "8", "64"}, "bf16"), one = tensor({"t", "1", "64"}, "bf16");
  std::string body = "    %g = cermet.gather %x, %i : " + rows + ", " + places + " to " + all +
                     "\n    %b = cermet.broadcast %w : " + weights + " to " + all +
                     "\n    %m = cermet.mul %g, %b : " + all + "\n    %r2 = cermet.neg %r : " + r + "\n";
  std::string sum = "%r2";
  for (int i = 0; i < 8; ++i) {
    body += fmt::format("    %s{0} = cermet.slice %m [0, {0}, 0] : {1} to {2}\n"
                        "    %p{0} = cermet.reshape %s{0} : {2} to {3}\n    %t{0} = cermet.add {4}, %p{0} : {3}\n",
                        i, all, one, r, sum);
    sum = fmt::format("%t{}", i);
  }
  json plan = planOf(graph("f", "%x: " + rows + ", %i: " + places + ", %w: " + weights + ", %r: " + r, r,
                           body + "    return " + sum + " : " + r + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 1u) << plan["steps"].dump(1);
  EXPECT_EQ(plan["steps"][0]["operands"].size(), 26u);
}

TEST(Plan, AnIndexOfIotaIsStored) {
  std::string table = tensor({"v", "8"}, "f32"), ids = tensor({"5"}, "i32"), x = tensor({"5", "8"}, "f32");
  json plan = planOf(graph("f", "%t: " + table, x,
                           "    %i = cermet.iota 0 : " + ids + "\n    %e = cermet.gather %t, %i : " + table + ", " +
                               ids + " to " + x + "\n    return %e : " + x + "\n"));
  checkOrder(plan);
  ASSERT_EQ(plan["steps"].size(), 2u);
  EXPECT_EQ(plan["steps"][1]["operands"][1]["kind"], "gathered");
}

TEST(Plan, AGatherOfNoKernelsTypeIsExternal) {
  std::string table = tensor({"v", "8"}, "f64"), ids = tensor({"r0"}, "i32"), x = tensor({"r0", "8"}, "f64");
  json plan = planOf(
      graph("f", "%t: " + table + ", %i: " + ids, x,
            "    %e = cermet.gather %t, %i : " + table + ", " + ids + " to " + x + "\n    return %e : " + x + "\n"));
  ASSERT_EQ(plan["steps"].size(), 1u);
  EXPECT_EQ(plan["steps"][0]["op"], "cermet.gather");
  EXPECT_EQ(plan["steps"][0]["reason"], "kernels have no values of f64");
}

TEST(Plan, HostEntriesAreTheHosts) {
  json plan = planOf(glu({"r0", "64"}, "f32"), "host:x86-64-v3");
  EXPECT_EQ(plan["steps"][0]["entries"]["vector"], plan["steps"][0]["entries"]["scalar"]);
  EXPECT_EQ(plan["steps"][0]["vector"], 1);
}

TEST(Plan, ManySmallOperationsBecomeAFewKernels) {
  std::string x = tensor({"r0", "64"}, "f32"), m = tensor({"64", "64"}, "f32"), body, previous = "%x";
  for (int i = 0; i < 1000; ++i) {
    body += fmt::format("    %v{} = cermet.{} : {}\n", i, i % 10 ? "neg " + previous : "exp " + previous, x);
    previous = "%v" + std::to_string(i);
  }
  body +=
      "    %h = cermet.matmul " + previous + ", %m : " + x + ", " + m + " to " + x + "\n    return %h : " + x + "\n";
  json plan = planOf(graph("long", "%x: " + x + ", %m: " + m, x, body));
  checkOrder(plan);
  EXPECT_EQ(plan["steps"].size(), 3u); // kernels of 512 operations
}

// What a reshape leaves last has the stride that it had: a dimension of 1 behind it has none of its own.
TEST(Plan, AReshapeThatDropsALastOneIsReadWithItsStride) {
  std::string wide = tensor({"r0", "2", "2"}, "f32"), one = tensor({"r0", "2", "1"}, "f32"),
              x = tensor({"r0", "2"}, "f32");
  json plan = planOf(graph("f", "%x: " + wide, x,
                           "    %s = cermet.slice %x [0, 0, 0] : " + wide + " to " + one +
                               "\n    %y = cermet.reshape %s : " + one + " to " + x + "\n    return %y : " + x + "\n"));
  checkOrder(plan);
  EXPECT_EQ(plan["steps"][0]["operands"][0]["strided"], true);
}

// A part of a concat lies between other parts, where a view of it would not be dense.
TEST(Plan, WhatIsReshapedIsNotStoredInAConcat) {
  std::string one = tensor({"3", "1"}, "f32"), x = tensor({"3"}, "f32"), both = tensor({"3", "2"}, "f32");
  json plan = planOf(graph("f", "%x: " + one, x + ", " + both,
                           "    %e = cermet.exp %x : " + one + "\n    %y = cermet.reshape %e : " + one + " to " + x +
                               "\n    %c = cermet.concat %e, %e {dim = 1 : i64} : " + one + ", " + one + " to " + both +
                               "\n    return %y, %c : " + x + ", " + both + "\n"));
  checkOrder(plan);
  for (const json& operand : plan["steps"][0]["operands"])
    if (operand["output"]) {
      EXPECT_EQ(plan["values"][operand["value"].get<int>()]["kind"], "buffer");
    }
}

std::string joinedSums(const std::string& body, const std::string& results) {
  const std::string a = tensor({"r0", "96"}, "f32"), b = tensor({"r0", "32"}, "f32"), t = tensor({"r0", "128"}, "f32");
  const std::string sa = tensor({"96"}, "f32"), sb = tensor({"32"}, "f32"), m = tensor({"r0", "8"}, "f32");
  const std::string w = tensor({"128", "8"}, "f32"), l = tensor({"r0", "160"}, "f32");
  auto filled = [&](const std::string& text) {
    return fmt::format(fmt::runtime(text), fmt::arg("a", a), fmt::arg("b", b), fmt::arg("t", t), fmt::arg("sa", sa),
                       fmt::arg("sb", sb), fmt::arg("m", m), fmt::arg("w", w), fmt::arg("l", l));
  };
  return graph("f", "%a: " + a + ", %b: " + b + ", %w: " + w, filled(results), filled(body));
}

// How many programs read an input.
size_t readersOf(const json& plan, const std::string& input) {
  size_t found = 0;
  for (const json& step : plan["steps"])
    for (const json& program : step.value("programs", json::array({step})))
      if (step["kind"] == "kernel")
        found += std::ranges::any_of(program["operands"], [&](const json& operand) {
          return plan["values"][operand["value"].get<int>()].value("name", "") == input;
        });
  return found;
}

TEST(Plan, WhatAConcatJoinsIsStoredByTheKernelThatReadsIt) {
  const std::string sums = "    %s = cermet.sum_rows %a : {a} to {sa}\n    %u = cermet.sum_rows %b : {b} to {sb}\n";
  const std::string joined = "    %t = cermet.concat %a, %b {{dim = 1 : i64}} : {a}, {b} to {t}\n";
  for (const std::string target : {"sm_80", "sm_90", "host:x86-64-v3"}) {
    json plan =
        planOf(joinedSums(sums + joined + "    return %t, %s, %u : {t}, {sa}, {sb}\n", "{t}, {sa}, {sb}"), target);
    const bool isHost = target.starts_with("host"); // whose schedules of the two differ
    ASSERT_EQ(plan["steps"].size(), isHost ? 2u : 1u) << target;
    for (const json& program : isHost ? plan["steps"] : plan["steps"][0]["programs"])
      EXPECT_EQ(program["operands"].size(), 3u);
    checkOrder(plan);
  }
  // The product reads the whole before anything reads a part of it: a kernel behind it stores nothing there.
  json late = planOf(joinedSums(joined + "    %p = cermet.matmul %t, %w : {t}, {w} to {m}\n" + sums +
                                    "    return %p, %s, %u : {m}, {sa}, {sb}\n",
                                "{m}, {sa}, {sb}"));
  checkOrder(late);
  EXPECT_EQ(readersOf(late, "b"), 2u);
  // One part twice, and of one joined twice.
  json twice = planOf(joinedSums("    %s = cermet.sum_rows %b : {b} to {sb}\n"
                                 "    %l = cermet.concat %b, %b, %a {{dim = 1 : i64}} : {b}, {b}, {a} to {l}\n"
                                 "    %t = cermet.concat %b, %a {{dim = 1 : i64}} : {b}, {a} to {t}\n"
                                 "    return %l, %t, %s : {l}, {t}, {sb}\n",
                                 "{l}, {t}, {sb}"));
  checkOrder(twice);
  EXPECT_EQ(readersOf(twice, "b"), 1u);
  EXPECT_EQ(readersOf(twice, "a"), 2u);
}

// A concat of one tensor's parts whose columns no kernel reads in their order stays one, and its reshape is not taken
// for another way to make itself.
TEST(Plan, AConcatThatNoKernelReadsInPlaceStays) {
  std::string x = tensor({"16"}, "i16"), rows = tensor({"2", "8"}, "i16"), both = tensor({"2", "16"}, "i16"),
              flat = tensor({"32"}, "i16");
  json plan =
      planOf(graph("f", "%x: " + x, flat,
                   "    %r = cermet.reshape %x : " + x + " to " + rows + "\n    %m = cermet.min %r, %r : " + rows +
                       "\n    %c = cermet.concat %m, %r {dim = 1 : i64} : " + rows + ", " + rows + " to " + both +
                       "\n    %f = cermet.reshape %c : " + both + " to " + flat + "\n    return %f : " + flat + "\n"));
  checkOrder(plan);
}

} // namespace
