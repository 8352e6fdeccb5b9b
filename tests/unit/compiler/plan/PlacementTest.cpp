// What a plan says of its outputs' memory: which inputs' they may take, and which orders of dimensions have views.
#include "compiler/plan/Placement.h"
#include "compiler/plan/Plan.h"
#include "compiler/program/Dump.h"
#include "tests/unit/compiler/GraphTexts.h"
#include "tests/unit/compiler/plan/Plans.h"
#include <gtest/gtest.h>
#include <numeric>
#include <optional>

using namespace cermet;
using namespace cermet::tests;
using Json = nlohmann::ordered_json;

namespace {

// By name: the inputs whose memory the output may take.
std::vector<std::string> inPlace(const Json& plan, const std::string& name) {
  std::vector<std::string> result;
  for (const Json& value : plan["values"])
    if (value["name"] == name && value["kind"] == "output")
      for (int input : value.value("in_place", std::vector<int>()))
        result.push_back(plan["values"][input]["name"]);
  return result;
}

using Names = std::vector<std::string>;

TEST(InPlace, WhatOneKernelReadsAndWritesElementByElement) {
  EXPECT_EQ(inPlace(planOf(addRmsNorm({"r0", "r1", "4096"}, "bf16", "bf16", "bf16", "eps = 1.0e-6")), "result0"),
            (Names{"x", "residual"}));
  EXPECT_EQ(inPlace(planOf(glu({"r0", "64"}, "bf16")), "result0"), (Names{"gate", "up"}));
}

TEST(InPlace, NotAnotherTypeNorWhatIsReadLaterOrElsewhere) {
  const std::string x = tensor({"r0", "64"}, "f32"), half = tensor({"r0", "64"}, "bf16"),
                    m = tensor({"64", "64"}, "f32");
  auto of = [&](const std::string& arguments, const std::string& results, const std::string& body) {
    return planOf(graph("f", arguments, results, body));
  };
  const std::string argument = "%x: " + x;
  EXPECT_EQ(inPlace(of(argument, x, "    %y = cermet.neg %x : " + x + "\n    return %y : " + x + "\n"), "result0"),
            Names{"x"});
  EXPECT_EQ(
      inPlace(of(argument, half, "    %y = cermet.cast %x : " + x + " to " + half + "\n    return %y : " + half + "\n"),
              "result0"),
      Names{});
  // A sum that reads x after y was written may take its memory, y may not.
  const Json plan = of(argument + ", %m: " + m, x + ", " + x,
                       "    %y = cermet.neg %x : " + x + "\n    %h = cermet.matmul %y, %m : " + x + ", " + m + " to " +
                           x + "\n    %z = cermet.add %h, %x : " + x + "\n    return %y, %z : " + x + ", " + x + "\n");
  EXPECT_EQ(inPlace(plan, "result0"), Names{});
  EXPECT_EQ(inPlace(plan, "result1"), Names{"x"});
  // Other rows than its own.
  EXPECT_EQ(inPlace(of("%x: " + m, m,
                       "    %t = cermet.transpose %x [1, 0] : " + m + " to " + m +
                           "\n    %y = cermet.add %x, %t : " + m + "\n    return %y : " + m + "\n"),
                    "result0"),
            Names{});
}

TEST(InPlace, EveryResultThatReadsItsOperandsAtItsOwnPlace) {
  const std::string x = tensor({"r0", "64"}, "f32");
  const Json plan = planOf(graph("f", "%a: " + x + ", %b: " + x, x + ", " + x,
                                 "    %y = cermet.mul %a, %b : " + x + "\n    %z = cermet.add %a, %b : " + x +
                                     "\n    return %y, %z : " + x + ", " + x + "\n"));
  EXPECT_EQ(inPlace(plan, "result0"), (Names{"a", "b"}));
  EXPECT_EQ(inPlace(plan, "result1"), (Names{"a", "b"}));
}

TEST(InPlace, HalvesOfOneTensorWhereEachIsReadAtItsOwnPlace) {
  auto of = [&](int columns) {
    const std::string x = tensor({"r0", std::to_string(2 * columns)}, "f32"),
                      half = tensor({"r0", std::to_string(columns)}, "f32");
    return planOf(graph("f", "%x: " + x, x,
                        "    %a = cermet.slice %x [0, 0] : " + x + " to " + half + "\n    %b = cermet.slice %x [0, " +
                            std::to_string(columns) + "] : " + x + " to " + half +
                            "\n    %m = cermet.mul %a, %b : " + half + "\n    %n = cermet.add %a, %b : " + half +
                            "\n    %y = cermet.concat %m, %n {dim = 1 : i64} : " + half + ", " + half + " to " + x +
                            "\n    return %y : " + x + "\n"));
  };
  EXPECT_EQ(inPlace(of(8192), "result0"), Names{"x"});
  EXPECT_EQ(inPlace(of(64), "result0"), Names{}); // a short row's columns are read in another order
}

TEST(InPlace, NotWhatIsPickedWhileOthersOfItsRowAreStored) {
  const std::string x = tensor({"r0", "64"}, "f32"), row = tensor({"r0", "1"}, "f32"),
                    label = tensor({"r0", "1"}, "i64");
  auto of = [&](const std::string& more, const std::string& from) {
    return planOf(graph("f", "%x: " + x + ", %i: " + label, x,
                        "    %p = cermet.pick %x, %i : " + x + ", " + label + " to " + row +
                            "\n    %q = cermet.broadcast %p : " + row + " to " + x + "\n" + more +
                            "    %y = cermet.sub " + from + ", %q : " + x + "\n    return %y : " + x + "\n"));
  };
  EXPECT_EQ(inPlace(of("", "%x"), "result0"), Names{});
  EXPECT_EQ(inPlace(of("    %m = cermet.reduce_max %x : " + x + " to " + row + "\n    %n = cermet.broadcast %m : " +
                           row + " to " + x + "\n    %d = cermet.sub %x, %n : " + x + "\n",
                       "%d"),
                    "result0"),
            Names{"x"});
}

// The strides of the same elements in another shape; nothing where only a copy has it.
std::optional<std::vector<int64_t>> reshaped(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                                             const std::vector<int64_t>& shape) {
  std::vector<std::pair<int64_t, int64_t>> runs; // neighbours that memory holds as one: size and last stride
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && !runs.empty() && runs.back().second == sizes[i] * strides[i])
      runs.back() = {runs.back().first * sizes[i], strides[i]};
    else if (sizes[i] != 1)
      runs.emplace_back(sizes[i], strides[i]);
  std::vector<int64_t> made(shape.size());
  int64_t left = 1, step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (left == 1 && shape[i] != 1) {
      std::tie(left, step) = runs.back();
      runs.pop_back();
    }
    if (left % shape[i])
      return std::nullopt;
    made[i] = step;
    left /= shape[i];
    step *= shape[i];
  }
  return made;
}

// Whether every view of value 0, dense in the order, has strides: with primes for symbols, no product of which is
// another.
bool hasViews(const Json& values, const std::vector<int>& order) {
  auto sizesOf = [](const Json& value) {
    std::vector<int64_t> sizes;
    for (const Json& dim : value["dims"])
      sizes.push_back(dim.is_string() ? std::map<std::string, int>{{"a", 3}, {"b", 5}, {"c", 7}}.at(dim)
                                      : dim.get<int>());
    return sizes;
  };
  std::vector<std::vector<int64_t>> sizes, strides;
  for (const Json& value : values) {
    sizes.push_back(sizesOf(value));
    if (value["kind"] == "output") {
      std::vector<int64_t>& made = strides.emplace_back(sizes[0].size());
      int64_t stride = 1;
      for (size_t i = order.size(); i-- > 0; stride *= sizes[0][order[i]])
        made[order[i]] = stride;
      continue;
    }
    const int of = value["of"];
    std::vector<int64_t> seen = strides[of];
    if (value["view"] == "transpose")
      for (size_t dim = 0; dim < seen.size(); ++dim)
        seen[dim] = strides[of][value["permutation"][dim].get<int>()];
    if (value["view"] == "reshape") {
      const auto made = reshaped(sizes[of], strides[of], sizes.back());
      if (!made)
        return false;
      seen = *made;
    }
    strides.push_back(seen);
  }
  return true;
}

// Whether the order keeps the dimensions that must be together.
bool keeps(const Json& output, std::vector<int> order) {
  std::erase_if(order, [&](int axis) { return output["dims"][axis] == 1; });
  for (const std::vector<int>& run : output.value("together", std::vector<std::vector<int>>()))
    if (std::search(order.begin(), order.end(), run.begin(), run.end()) == order.end())
      return false;
  return true;
}

TEST(Together, IsWhatStridesSayOfEveryOrder) {
  const char* cases[] = {
      R"([{"dims": ["a", "b", 64]}])",
      R"([{"dims": ["a", "b", 64]}, {"view": "reshape", "of": 0, "dims": ["ab", 64]}])",
      R"([{"dims": ["a", 4, "b", 64]}, {"view": "transpose", "of": 0, "permutation": [0, 2, 1, 3], "dims": ["a", "b", 4, 64]},
          {"view": "reshape", "of": 1, "dims": ["a", "b", 256]}])",
      R"([{"dims": ["a", 1, "b", 64]}, {"view": "reshape", "of": 0, "dims": ["a", "b", 64, 1]}])",
      R"([{"dims": ["a", 12, "b", 64]}, {"view": "reshape", "of": 0, "dims": ["a", 3, 4, "b", 64]},
          {"view": "slice", "of": 1, "starts": [0, 0, 2, 0, 0], "dims": ["a", 3, 2, "b", 64]}])",
      R"([{"dims": ["a", "b", 4, 64]}, {"view": "reshape", "of": 0, "dims": ["a", "b", 256]},
          {"view": "reshape", "of": 0, "dims": [2, "a", "b", 2, 64]}])",
      R"([{"dims": ["a", "b", "c", 64]}, {"view": "reshape", "of": 0, "dims": ["a", "bc", 64]},
          {"view": "reshape", "of": 1, "dims": ["a", "b", "c", 64]}])",
  };
  for (const char* text : cases) {
    Json values = Json::parse(text);
    for (Json& value : values) {
      value["kind"] = value.contains("of") ? "view" : "output";
      value["dtype"] = "f32";
      // A name of several letters stands for a product: here as two dimensions that are always reshaped as one.
      Json dims = Json::array();
      for (const Json& dim : value["dims"])
        dims.push_back(dim == "ab" ? Json(15) : dim == "bc" ? Json(35) : dim);
      value["dims"] = dims;
    }
    Json numbers = values; // with numbers for symbols, as a launch has them
    for (Json& value : numbers)
      for (Json& dim : value["dims"])
        dim = dim == "a" ? Json(3) : dim == "b" ? Json(5) : dim == "c" ? Json(7) : dim;
    tellPlacement(numbers, Json::array());
    std::vector<int> order(values[0]["dims"].size());
    std::iota(order.begin(), order.end(), 0);
    do
      if (order.back() + 1 == int(order.size())) {
        EXPECT_EQ(keeps(numbers[0], order), hasViews(values, order)) << text << " " << Json(order);
      }
    while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Together, SymbolsKeepWhatOnlyALaunchCanTellApart) {
  Json values = Json::parse(R"([{"kind": "output", "dtype": "f32", "dims": ["a", "b", 4, 64]},
      {"kind": "view", "view": "reshape", "of": 0, "dtype": "f32", "dims": ["rows", 4, 64]},
      {"kind": "output", "dtype": "f32", "dims": ["a", "b", 4, 64]},
      {"kind": "view", "view": "reshape", "of": 2, "dtype": "f32", "dims": ["a", "b", 256]},
      {"kind": "output", "dtype": "f32", "dims": ["a", "b", 64]},
      {"kind": "view", "view": "reshape", "of": 4, "dtype": "f32", "dims": ["a", "b", 2, 32]}])");
  tellPlacement(values, Json::array());
  EXPECT_EQ(values[0]["together"], Json::parse("[[0, 1, 2, 3]]"));
  EXPECT_EQ(values[2]["together"], Json::parse("[[2, 3]]"));
  EXPECT_FALSE(values[4].contains("together"));
}

TEST(Together, APlanTellsIt) {
  const std::string x = tensor({"r0", "4", "16"}, "f32"), split = tensor({"r0", "2", "2", "16"}, "f32");
  Json plan = planOf(graph("f", "%x: " + x, split,
                           "    %e = cermet.exp %x : " + x + "\n    %y = cermet.reshape %e : " + x + " to " + split +
                               "\n    return %y : " + split + "\n"));
  EXPECT_EQ(plan["values"][1].value("together", Json()), Json::parse("[[1, 2]]")) << plan["values"];
}

} // namespace
