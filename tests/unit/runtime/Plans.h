// Plans that tests are made of, as the compiler would write them, and tensors to launch them on.
#pragma once
#include "runtime/context/Config.h"
#include "runtime/context/Context.h"
#include "runtime/launch/Executable.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cermet {

using Json = nlohmann::json;

// y[a, b, 8] = x[a, b, 8] * weight[8]
inline Json scalePlan(const std::string& target = "$TARGET", const std::string& spec = "file " FAKE_KERNELS) {
  return {{"format", "cermet.plan.1"},
          {"name", "scale"},
          {"target", target},
          {"values",
           {{{"name", "x"}, {"kind", "input"}, {"dtype", "f32"}, {"dims", {"a", "b", 8}}},
            {{"name", "weight"}, {"kind", "input"}, {"dtype", "f32"}, {"dims", {8}}},
            {{"name", "y"}, {"kind", "output"}, {"dtype", "f32"}, {"dims", {"a", "b", 8}}}}},
          {"steps",
           {{{"kind", "kernel"},
             {"name", "scale"},
             {"spec", spec},
             {"skeleton", "row"},
             {"columns", 8},
             {"threads", 64},
             {"rows_per_block", 2},
             {"vector", 4},
             {"blocks_per_sm", 0},
             {"shared_bytes", 0},
             {"accumulators", 0},
             {"entries", {{"vector", "scale_vector"}, {"scalar", "scale_scalar"}, {"fold", ""}}},
             {"operands",
              {{{"value", 0}, {"kind", "tile"}, {"dtype", "f32"}, {"output", false}},
               {{"value", 1}, {"kind", "column"}, {"dtype", "f32"}, {"output", false}},
               {{"value", 2}, {"kind", "tile"}, {"dtype", "f32"}, {"output", true}}}}}}},
          {"regions", Json::array()},
          {"near_misses", Json::array()}};
}

// y[a, b, 8] = the rows of x[v, 8] by the numbers i[a, b]
inline Json gatherPlan(const std::string& index = "i64") {
  Json plan = scalePlan();
  plan["name"] = "gather";
  plan["values"] = {
      {{"name", "x"}, {"kind", "input"}, {"dtype", "f32"}, {"dims", {"v", 8}}},
      {{"name", "i"}, {"kind", "input"}, {"dtype", index}, {"dims", {"a", "b"}}},
      {{"name", "y"}, {"kind", "output"}, {"dtype", "f32"}, {"dims", {"a", "b", 8}}},
      {{"name", "i.1"}, {"kind", "view"}, {"dtype", index}, {"dims", {"a", "b", 1}}, {"of", 1}, {"view", "reshape"}}};
  Json& step = plan["steps"][0];
  step["name"] = "gather";
  step["entries"] = {{"vector", "gather_vector"}, {"scalar", "gather_scalar"}, {"fold", ""}};
  step["operands"] = {{{"value", 0}, {"kind", "gathered"}, {"dtype", "f32"}, {"output", false}, {"rows", 1}},
                      {{"value", 3}, {"kind", "row"}, {"dtype", index}, {"output", false}},
                      {{"value", 2}, {"kind", "tile"}, {"dtype", "f32"}, {"output", true}}};
  return plan;
}

// y[a, 8] = of row a the sum of the rows of x[v, 8] whose numbers the list i[m] has from b[a] to before e[a]; s[p, 8]
// are the sums of its parts
inline Json bagPlan() {
  Json plan = gatherPlan();
  plan["values"] = {{{"name", "x"}, {"kind", "input"}, {"dtype", "f32"}, {"dims", {"v", 8}}},
                    {{"name", "i"}, {"kind", "input"}, {"dtype", "i64"}, {"dims", {"m"}}},
                    {{"name", "b"}, {"kind", "input"}, {"dtype", "i32"}, {"dims", {"a", 1}}},
                    {{"name", "e"}, {"kind", "input"}, {"dtype", "i32"}, {"dims", {"a", 1}}},
                    {{"name", "s"}, {"kind", "input"}, {"dtype", "f32"}, {"dims", {"p", 8}}},
                    {{"name", "y"}, {"kind", "output"}, {"dtype", "f32"}, {"dims", {"a", 8}}}};
  plan["steps"][0]["operands"] = {{{"value", 1}, {"kind", "list"}, {"dtype", "i64"}, {"output", false}},
                                  {{"value", 2}, {"kind", "row"}, {"dtype", "i32"}, {"output", false}},
                                  {{"value", 3}, {"kind", "row"}, {"dtype", "i32"}, {"output", false}},
                                  {{"value", 0},
                                   {"kind", "gathered"},
                                   {"dtype", "f32"},
                                   {"output", false},
                                   {"rows", 0},
                                   {"from", 1},
                                   {"to", 2},
                                   {"sums", 4}},
                                  {{"value", 4}, {"kind", "list"}, {"dtype", "f32"}, {"output", false}},
                                  {{"value", 5}, {"kind", "tile"}, {"dtype", "f32"}, {"output", true}}};
  return plan;
}

// t = x * weight (a buffer); total[8] = sum over rows of t
inline Json sumPlan(const std::string& target = "$TARGET", const std::string& spec = "file " FAKE_KERNELS) {
  Json plan = scalePlan(target, spec);
  plan["name"] = "sum";
  plan["values"][2] = {{"name", "total"}, {"kind", "output"}, {"dtype", "f32"}, {"dims", {8}}};
  plan["values"][3] = {{"name", "t"}, {"kind", "buffer"}, {"dtype", "f32"}, {"dims", {"a", "b", 8}}};
  plan["steps"][0]["operands"][2]["value"] = 3;
  Json& sum = plan["steps"][1] = plan["steps"][0];
  sum["name"] = "sum_rows";
  sum["blocks_per_sm"] = 2;
  sum["accumulators"] = 1;
  sum["entries"] = {{"vector", "sum_rows"}, {"scalar", "sum_rows"}, {"fold", "sum_rows_fold"}};
  sum["operands"] = {{{"value", 3}, {"kind", "tile"}, {"dtype", "f32"}, {"output", false}},
                     {{"value", 2}, {"kind", "column"}, {"dtype", "f32"}, {"output", true}}};
  return plan;
}

// y[a, b, 8] = x[a, b, 8] * weight[8] and z[c, 8] = u[c, 8] * weight[8], side by side in one kernel
inline Json besidePlan(const std::string& target = "$TARGET", const std::string& spec = "file " FAKE_KERNELS) {
  Json plan = scalePlan(target, spec);
  plan["name"] = "beside";
  const Json u{{"name", "u"}, {"kind", "input"}, {"dtype", "f32"}, {"dims", {"c", 8}}};
  const Json z{{"name", "z"}, {"kind", "output"}, {"dtype", "f32"}, {"dims", {"c", 8}}};
  plan["values"] = {plan["values"][0], plan["values"][1], u, plan["values"][2], z};
  Json& step = plan["steps"][0];
  Json first = Json::object();
  for (const char* field :
       {"skeleton", "columns", "rows_per_block", "vector", "blocks_per_sm", "accumulators", "operands"}) {
    first[field] = step[field];
    step.erase(field);
  }
  first["operands"][2]["value"] = 3;
  Json second = first;
  second["operands"][0]["value"] = 2;
  second["operands"][2]["value"] = 4;
  second["rows_per_block"] = 4;
  second["vector"] = 2;
  step["name"] = "beside";
  step["entries"] = {{"vector", "beside_vector"}, {"scalar", "beside_scalar"}, {"fold", ""}};
  step["programs"] = {first, second};
  return plan;
}

// total[8] = sum over rows of x[a, b, 8] and other[8] = sum over rows of u[c, 8], side by side in one kernel
inline Json sumsBesidePlan(const std::string& target = "$TARGET", const std::string& spec = "file " FAKE_KERNELS) {
  Json plan = besidePlan(target, spec);
  plan["name"] = "sums";
  const auto total = [](const char* name) -> Json {
    return {{"name", name}, {"kind", "output"}, {"dtype", "f32"}, {"dims", {8}}};
  };
  plan["values"] = {plan["values"][0], plan["values"][2], total("total"), total("other")};
  Json& step = plan["steps"][0];
  step["name"] = "sums";
  step["entries"] = {{"vector", "sum_rows"}, {"scalar", "sum_rows"}, {"fold", "sum_rows_fold"}};
  for (int program : {0, 1}) {
    Json& each = step["programs"][program];
    each["blocks_per_sm"] = 2;
    each["accumulators"] = 1;
    each["operands"] = {{{"value", program}, {"kind", "tile"}, {"dtype", "f32"}, {"output", false}},
                        {{"value", 2 + program}, {"kind", "column"}, {"dtype", "f32"}, {"output", true}}};
  }
  return plan;
}

// A tensor with its own sizes and strides; dense unless strides are given.
struct TestTensor {
  TestTensor(void* data, std::vector<int64_t> sizes, std::vector<int64_t> strides = {}, int32_t dtype = CERMET_F32)
      : data(data), sizes(std::move(sizes)), strides(std::move(strides)), dtype(dtype) {
    if (!this->strides.empty() || this->sizes.empty())
      return;
    this->strides.resize(this->sizes.size(), 1);
    for (size_t dim = this->sizes.size() - 1; dim-- > 0;)
      this->strides[dim] = this->strides[dim + 1] * this->sizes[dim + 1];
  }
  operator cermet_tensor() const {
    return {data, sizes.data(), strides.data(), static_cast<int32_t>(sizes.size()), dtype};
  }
  void* data;
  std::vector<int64_t> sizes, strides;
  int32_t dtype; // also what is no cermet_dtype
};

// A configuration that reaches no directory, no real compiler and no real driver.
inline Config testConfig() {
  Config config;
  config.compilerLibrary = FAKE_COMPILER;
  config.cudaLibrary = "libno-such-driver.so";
  config.threads = 4;
  config.compileThreads = 4;
  return config;
}

inline std::shared_ptr<Executable> prepare(const std::shared_ptr<Context>& context, const Json& plan,
                                           const std::string& target) {
  const auto compiled = context->compile(plan.dump(), target);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  if (!compiled.ok())
    return nullptr;
  const auto prepared = Executable::prepare(context, *compiled, 0);
  EXPECT_TRUE(prepared.ok()) << prepared.status().message();
  return prepared.ok() ? *prepared : nullptr;
}

} // namespace cermet
