// Views of a plan: where a launch finds their elements, against an array that is indexed, and what it refuses.
#include "tests/unit/runtime/Plans.h"
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace cermet {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>());
}

// Calls use(index) for every index of an array, in row-major order.
template <typename Use> void forEachIndex(const std::vector<int64_t>& sizes, const Use& use) {
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t left = product(sizes); left > 0; --left) {
    use(index);
    for (size_t dim = sizes.size(); dim-- > 0 && ++index[dim] == sizes[dim];)
      index[dim] = 0;
  }
}

// What a view is of, by the meaning of its kind: the elements in row-major order, each as its offset in memory.
struct Array {
  std::vector<int64_t> sizes, offsets;
  Json dims = Json::array();

  int64_t at(const std::vector<int64_t>& index) const {
    int64_t position = 0;
    for (size_t dim = 0; dim < sizes.size(); ++dim)
      position = position * sizes[dim] + index[dim];
    return offsets[static_cast<size_t>(position)];
  }
  // Whether strides can say where the elements are.
  bool isAffine() const {
    bool affine = true;
    forEachIndex(sizes, [&](const std::vector<int64_t>& index) {
      int64_t offset = offsets[0];
      for (size_t dim = 0; dim < sizes.size(); ++dim) {
        std::vector<int64_t> unit(sizes.size(), 0);
        unit[dim] = sizes[dim] > 1 ? 1 : 0;
        offset += index[dim] * (at(unit) - offsets[0]);
      }
      affine = affine && offset == at(index);
    });
    return affine;
  }
};

struct RandomViews {
  std::mt19937 random;
  std::vector<int64_t> symbols; // sizes that are symbols of their own inputs

  int64_t below(int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); }
  Json dimension(int64_t size) {
    if (below(2))
      return size;
    if (std::find(symbols.begin(), symbols.end(), size) == symbols.end())
      symbols.push_back(size);
    return fmt::format("s{}", size);
  }
  Json dimensions(const std::vector<int64_t>& sizes) {
    Json dims = Json::array();
    for (int64_t size : sizes)
      dims.push_back(dimension(size));
    return dims;
  }

  Array slice(const Array& from, Json& view) {
    Array to;
    std::vector<int64_t> starts;
    for (int64_t size : from.sizes) {
      starts.push_back(below(size + 1));
      to.sizes.push_back(below(4) ? size - starts.back() : below(size - starts.back() + 1));
    }
    forEachIndex(to.sizes, [&](std::vector<int64_t> index) {
      for (size_t dim = 0; dim < index.size(); ++dim)
        index[dim] += starts[dim];
      to.offsets.push_back(from.at(index));
    });
    view["view"] = "slice";
    view["starts"] = starts;
    to.dims = dimensions(to.sizes);
    return to;
  }
  Array transpose(const Array& from, Json& view) {
    Array to;
    std::vector<int64_t> permutation(from.sizes.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::shuffle(permutation.begin(), permutation.end(), random);
    for (int64_t dim : permutation) {
      to.sizes.push_back(from.sizes[static_cast<size_t>(dim)]);
      to.dims.push_back(from.dims[static_cast<size_t>(dim)]);
    }
    forEachIndex(to.sizes, [&](const std::vector<int64_t>& index) {
      std::vector<int64_t> source(index.size());
      for (size_t dim = 0; dim < index.size(); ++dim)
        source[static_cast<size_t>(permutation[dim])] = index[dim];
      to.offsets.push_back(from.at(source));
    });
    view["view"] = "transpose";
    view["permutation"] = permutation;
    return to;
  }
  Array reshape(const Array& from, Json& view) {
    Array to{{}, from.offsets};
    std::vector<int64_t> factors;
    for (int64_t size : from.sizes)
      for (int64_t factor = 2; size > 1 || size == 0; ++factor)
        for (; size % factor == 0; size = size ? size / factor : 1)
          factors.push_back(size ? factor : 0);
    if (below(2))
      std::shuffle(factors.begin(), factors.end(), random);
    for (int64_t factor : factors)
      if (to.sizes.empty() || to.sizes.size() >= 5 || below(2))
        to.sizes.push_back(factor);
      else
        to.sizes.back() *= factor;
    while (to.sizes.size() > 6) {
      to.sizes[0] *= to.sizes.back();
      to.sizes.pop_back();
    }
    if (below(2))
      to.sizes.insert(to.sizes.begin() + below(static_cast<int64_t>(to.sizes.size()) + 1), 1);
    view["view"] = "reshape";
    to.dims = dimensions(to.sizes);
    return to;
  }
  Array broadcast(const Array& from, Json& view) {
    Array to{from.sizes, {}};
    for (int64_t& size : to.sizes)
      size = size == 1 ? below(4) : size;
    if (to.sizes.size() < 6 && below(2))
      to.sizes.insert(to.sizes.begin(), below(4));
    forEachIndex(to.sizes, [&](const std::vector<int64_t>& index) {
      std::vector<int64_t> source(index.end() - static_cast<int64_t>(from.sizes.size()), index.end());
      for (size_t dim = 0; dim < source.size(); ++dim)
        source[dim] = from.sizes[dim] == 1 ? 0 : source[dim];
      to.offsets.push_back(from.at(source));
    });
    view["view"] = "broadcast";
    to.dims = dimensions(to.sizes);
    return to;
  }
};

// The elements that an external step finds in its operand.
cermet_status readElements(void* user, const char*, const cermet_tensor* tensors, int32_t, int32_t, void*) {
  const cermet_tensor& given = tensors[0];
  std::vector<int64_t> sizes(given.sizes, given.sizes + given.rank);
  auto& read = *static_cast<std::vector<int64_t>*>(user);
  read.clear();
  forEachIndex(sizes, [&](const std::vector<int64_t>& index) {
    int64_t offset = 0;
    for (int32_t dim = 0; dim < given.rank; ++dim)
      offset += index[static_cast<size_t>(dim)] * given.strides[dim];
    read.push_back(static_cast<const int32_t*>(given.data)[offset]);
  });
  return CERMET_OK;
}

Json viewPlan(Json values, int operand) {
  return {{"format", "cermet.plan.1"},
          {"name", "views"},
          {"target", "$TARGET"},
          {"values", std::move(values)},
          {"steps", {{{"kind", "external"}, {"op", "read"}, {"operands", {operand}}, {"results", Json::array()}}}}};
}

TEST(Views, ChainsReadWhatTheyMean) {
  const auto context = std::make_shared<Context>(testConfig());
  std::vector<int32_t> memory(4096);
  std::iota(memory.begin(), memory.end(), 0);
  int read = 0, empty = 0, refused = 0;
  for (unsigned trial = 0; trial < 4000; ++trial) {
    RandomViews make;
    make.random.seed(trial);
    Array array;
    for (int64_t rank = make.below(5); rank > 0; --rank)
      array.sizes.push_back(make.below(12) ? make.below(4) + 1 : 0);
    // Dense in some order, with gaps and repeated dimensions among them.
    std::vector<int64_t> strides(array.sizes.size()), order(array.sizes.size());
    std::iota(order.rbegin(), order.rend(), 0);
    if (make.below(3) == 0)
      std::shuffle(order.begin(), order.end(), make.random);
    int64_t dense = make.below(4) ? 1 : 2;
    for (int64_t dim : order) {
      strides[static_cast<size_t>(dim)] = make.below(10) ? dense : 0;
      dense = dense * std::max<int64_t>(array.sizes[static_cast<size_t>(dim)], 1) + (make.below(8) ? 0 : 1);
    }
    forEachIndex(array.sizes, [&](const std::vector<int64_t>& index) {
      array.offsets.push_back(std::inner_product(index.begin(), index.end(), strides.begin(), int64_t(0)));
    });
    array.dims = make.dimensions(array.sizes);
    const Json root = {{"name", "x"}, {"kind", "input"}, {"dtype", "i32"}, {"dims", array.dims}};
    const TestTensor x(memory.data(), array.sizes, strides, CERMET_I32);
    std::vector<Json> views;
    bool strided = true; // whether strides can say where every view's elements are
    for (int64_t count = make.below(4) + 1; count > 0; --count) {
      Json view = {{"name", fmt::format("v{}", views.size())}, {"kind", "view"}, {"dtype", "i32"}};
      const int64_t kind = make.below(4);
      array = kind == 0   ? make.slice(array, view)
              : kind == 1 ? make.transpose(array, view)
              : kind == 2 ? make.reshape(array, view)
                          : make.broadcast(array, view);
      view["dims"] = array.dims;
      views.push_back(view);
      strided = strided && array.isAffine();
    }
    Json values = {root};
    std::vector<TestTensor> given{x};
    for (int64_t symbol : make.symbols) { // inputs that say how large the symbols are
      values.push_back({{"name", "size"}, {"kind", "input"}, {"dtype", "i32"}, {"dims", {fmt::format("s{}", symbol)}}});
      given.emplace_back(memory.data(), std::vector<int64_t>{symbol}, std::vector<int64_t>{1}, CERMET_I32);
    }
    for (size_t index = 0; index < views.size(); ++index) {
      views[index]["of"] = index == 0 ? 0 : static_cast<int>(values.size()) - 1;
      values.push_back(views[index]);
    }
    const Json plan = viewPlan(values, static_cast<int>(values.size()) - 1);
    const auto executable = prepare(context, plan, "host");
    ASSERT_TRUE(executable) << plan;
    std::vector<int64_t> elements{-1};
    executable->setExternal(readElements, &elements);
    const std::vector<cermet_tensor> tensors(given.begin(), given.end());
    const Status status = executable->launch(nullptr, tensors.data(), static_cast<int32_t>(tensors.size()), nullptr, 0);
    if (!strided) {
      ASSERT_EQ(status.code(), CERMET_UNSUPPORTED) << plan;
      ASSERT_TRUE(status.message().starts_with("views: input 'x' (tensor 0) of size [")) << status.message();
      ASSERT_TRUE(status.message().ends_with("; pass it contiguous")) << status.message();
      ++refused;
      continue;
    }
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << plan;
    ASSERT_EQ(elements, array.offsets) << plan;
    ++(elements.empty() ? empty : read);
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(empty, 100);
  EXPECT_GT(refused, 100);
}

struct ViewLaunch : testing::Test {
  std::shared_ptr<Context> context = std::make_shared<Context>(testConfig());
  Json plan = viewPlan({{{"name", "x"}, {"kind", "input"}, {"dtype", "i32"}, {"dims", {"a", "b"}}},
                        {{"name", "n"}, {"kind", "input"}, {"dtype", "i32"}, {"dims", {"c"}}},
                        {{"name", "v"}, {"kind", "view"}, {"dtype", "i32"}, {"of", 0}}},
                       2);
  int32_t memory[64] = {};

  Status launch(std::vector<int64_t> x, int64_t n, std::vector<int64_t> strides = {}) {
    const auto executable = prepare(context, plan, "host");
    if (!executable)
      return {CERMET_INTERNAL, "the plan is wrong"};
    executable->setExternal([](auto...) { return CERMET_OK; }, nullptr);
    const TestTensor first(memory, std::move(x), std::move(strides), CERMET_I32), second(memory, {n}, {1}, CERMET_I32);
    const cermet_tensor tensors[] = {first, second};
    return executable->launch(nullptr, tensors, 2, nullptr, 0);
  }
};

TEST_F(ViewLaunch, SizesAreComparedAtLaunch) {
  plan["values"][2].update({{"view", "slice"}, {"starts", {1, 0}}, {"dims", {"c", "b"}}});
  EXPECT_TRUE(launch({5, 2}, 4).ok());
  EXPECT_TRUE(launch({5, 2}, 0).ok());
  EXPECT_EQ(launch({5, 2}, 5).message(),
            "views: view 'v' (value 2) is a slice of 'x' from 1 in dimension 0 with 5 elements, which has 5 there");
  EXPECT_EQ(launch({0, 2}, 0).code(), CERMET_INVALID_ARGUMENT);
  plan["values"][2].update({{"view", "reshape"}, {"dims", {"c", 2}}});
  EXPECT_TRUE(launch({4, 5}, 10).ok());
  EXPECT_TRUE(launch({4, 0}, 0).ok());
  EXPECT_EQ(
      launch({4, 5}, 9).message(),
      "views: view 'v' (value 2) of size [9, 2] is a reshape of 'x' of size [4, 5], which has not as many elements");
  EXPECT_EQ(launch({4, 0}, 9).code(), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(launch({int64_t(1) << 40, int64_t(1) << 40}, 9, {0, 0}).code(), CERMET_INVALID_ARGUMENT);
  plan["values"][2].update({{"view", "broadcast"}, {"dims", {3, "c", "b"}}});
  EXPECT_TRUE(launch({1, 2}, 10).ok());
  EXPECT_TRUE(launch({10, 2}, 10).ok());
  EXPECT_EQ(launch({2, 2}, 10).message(),
            "views: view 'v' (value 2) has size 10 in dimension 1, 'x' has 2 there, expected as many or 1");
}

TEST_F(ViewLaunch, ARefusedReshapeNamesTheCallersTensor) {
  plan["values"][2].update({{"view", "reshape"}, {"dims", {"c"}}});
  EXPECT_TRUE(launch({4, 5}, 20).ok());
  EXPECT_TRUE(launch({1, 5}, 5, {77, 2}).ok()) << "a size of 1 may have any stride";
  const Status refused = launch({4, 5}, 20, {6, 1});
  EXPECT_EQ(refused.code(), CERMET_UNSUPPORTED);
  EXPECT_EQ(refused.message(), "views: input 'x' (tensor 0) of size [4, 5] has strides [6, 1], with which it cannot be "
                               "read as 'v' of size [20]; pass it contiguous");
}

// y[b, a, 8] = (x[a, b, 16] from 8 on, transposed) * weight; y is written through a transpose too.
Json slicedPlan() {
  Json plan = scalePlan();
  plan["values"][0]["dims"] = {"a", "b", 16};
  plan["values"][2]["dims"] = {"b", "a", 8};
  plan["values"][3] = {{"name", "half"},  {"kind", "view"},      {"dtype", "f32"},       {"of", 0},
                       {"view", "slice"}, {"starts", {0, 0, 8}}, {"dims", {"a", "b", 8}}};
  plan["values"][4] = {{"name", "turned"},    {"kind", "view"},           {"dtype", "f32"},       {"of", 2},
                       {"view", "transpose"}, {"permutation", {1, 0, 2}}, {"dims", {"a", "b", 8}}};
  plan["steps"][0]["operands"][0]["value"] = 3;
  plan["steps"][0]["operands"][2]["value"] = 4;
  return plan;
}

TEST_F(ViewLaunch, KernelsReadAndWriteThem) {
  const auto executable = prepare(context, slicedPlan(), "host");
  ASSERT_TRUE(executable);
  constexpr int64_t kA = 3, kB = 5;
  std::vector<float> x(kA * kB * 16), weight(8), y(kA * kB * 8, -1.0f);
  std::iota(x.begin(), x.end(), 1.0f);
  std::iota(weight.begin(), weight.end(), 1.0f);
  const TestTensor given[] = {{x.data(), {kA, kB, 16}}, {weight.data(), {8}}, {y.data(), {kB, kA, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1], given[2]};
  const Status status = executable->launch(nullptr, tensors, 3, nullptr, 0);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t a = 0; a < kA; ++a)
    for (int64_t b = 0; b < kB; ++b)
      for (int64_t column = 0; column < 8; ++column)
        EXPECT_EQ(y[(b * kA + a) * 8 + column], x[(a * kB + b) * 16 + 8 + column] * weight[column]);
  const TestTensor none[] = {{nullptr, {0, kB, 16}}, {weight.data(), {8}}, {nullptr, {kB, 0, 8}}};
  const cermet_tensor empty[] = {none[0], none[1], none[2]};
  EXPECT_TRUE(executable->launch(nullptr, empty, 3, nullptr, 0).ok()) << "zero rows is legal";
}

TEST_F(ViewLaunch, AStrideThatAViewBringsIsNamed) {
  const auto executable = prepare(context, slicedPlan(), "host");
  ASSERT_TRUE(executable);
  std::vector<float> memory(2 * 3 * 16 * 2);
  const TestTensor given[] = {
      {memory.data(), {2, 3, 16}, {96, 32, 2}}, {memory.data(), {8}}, {memory.data(), {3, 2, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1], given[2]};
  EXPECT_EQ(
      executable->launch(nullptr, tensors, 3, nullptr, 0).message(),
      "scale: input 'x' (tensor 0) has a stride that gives its view 'half' stride 2 in the last dimension, expected "
      "1; copy it to a dense one");
}

} // namespace
} // namespace cermet
