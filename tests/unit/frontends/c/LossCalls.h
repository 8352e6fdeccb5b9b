// LossCalls: of a caller of the C interface in any order (Caller.h) what concerns losses of a linear layer, which the
// fake compiler cuts (LossPlans.h): one number with gradients, in the logits' memory or beside it, or one for each row.
#pragma once
#include "tests/unit/frontends/c/Draws.h"
#include "tests/unit/runtime/LossPlans.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace cermet {

class LossCalls {
public:
  static constexpr int kInputs = 4, kMostTensors = kInputs + 2 + 3;
  struct Loss {
    cermet_linear_cross_entropy* handle = nullptr;
    bool isEach = false;
    uint8_t gradients[kInputs] = {};
  };
  LossCalls(Draws& draws, const std::vector<Loss>& lent) : draws_(draws), lent_(lent), losses_(lent) {}
  ~LossCalls() {
    for (const Loss& loss : made(losses_, lent_))
      cermet_linear_cross_entropy_destroy(loss.handle);
  }
  LossCalls(const LossCalls&) = delete;
  LossCalls& operator=(const LossCalls&) = delete;

  // The first is of one number, in the logits' memory; then beside it; then of a number for each row.
  static const std::string& text(int which) {
    static const std::string texts[] = {lossPlan(false).dump(), lossPlan(false, false).dump(), lossPlan(true).dump()};
    return texts[which];
  }
  static constexpr int kTexts = 3, kEach = 2;
  static constexpr uint64_t kRowBytes = 32; // of logits

  // Multiplies, or does what `outcome` says.
  static cermet_status product(void* user, const char* op, const cermet_tensor* tensors, int32_t operands,
                               int32_t results, void*) {
    EXPECT_TRUE(operands == 2 && results == 1);
    const bool accumulates = std::string(op) == "matmul_accumulate";
    EXPECT_TRUE(accumulates || std::string(op) == "matmul") << op;
    for (int each = 0; each < 3; ++each) {
      const cermet_tensor& tensor = tensors[each];
      EXPECT_TRUE(tensor.rank == 2 && tensor.dtype == CERMET_F32 && tensor.sizes[0] > 0 && tensor.sizes[1] > 0);
      const bool isTransposed = tensor.strides[0] == 1 && tensor.strides[1] != 1;
      EXPECT_EQ(tensor.strides[isTransposed ? 0 : 1], 1) << op << " " << each;
      EXPECT_GE(tensor.strides[isTransposed ? 1 : 0], tensor.sizes[isTransposed ? 0 : 1]) << op << " " << each;
    }
    auto& state = *static_cast<Product*>(user);
    if (state.outcome == Product::Fails)
      return CERMET_DRIVER_ERROR;
    if (state.outcome == Product::Throws)
      throw std::runtime_error(kThrown);
    if (state.outcome == Product::Destroys)
      cermet_linear_cross_entropy_destroy(state.caller);
    const auto at = [&](int tensor, int64_t row, int64_t column) -> float& {
      return static_cast<float*>(
          tensors[tensor].data)[row * tensors[tensor].strides[0] + column * tensors[tensor].strides[1]];
    };
    for (int64_t row = 0; row < tensors[0].sizes[0]; ++row)
      for (int64_t column = 0; column < tensors[1].sizes[1]; ++column) {
        float sum = accumulates ? at(2, row, column) : 0;
        for (int64_t inner = 0; inner < tensors[0].sizes[1]; ++inner)
          sum += at(0, row, inner) * at(1, inner, column);
        at(2, row, column) = sum;
      }
    return CERMET_OK;
  }
  // Its `user`: one for all, as losses that are lent outlive who launches them.
  static void* productUser() { return &state(); }

  void destroy() {
    if (draws_.below(6) == 0)
      cermet_linear_cross_entropy_destroy(draws_.any(made(losses_, lent_)).handle);
  }

  // One in so many, as each takes as long as dozens of other calls.
  void prepare(cermet_context* context) {
    if (draws_.below(3) > 0)
      return;
    static const std::string others[] = {scalePlan().dump(), "fail 2 no", "fail 3 never"};
    static const uint8_t wanted[][kInputs] = {{1, 1, 1, 0}, {2, 2, 2, 0}, {0, 1, 0, 0}, {1, 0, 2, 0},
                                              {0, 0, 0, 0}, {1, 1, 1, 1}, {3, 0, 0, 0}, {0, 0, 1, 0}};
    static uint8_t gradients[1 << 16]; // longer than any text
    const int which = draws_.below(kTexts);
    const std::string& text = draws_.rarely() ? others[draws_.below(3)] : this->text(which);
    const size_t length = hardly() ? std::max<size_t>(draws_.number(64), CERMET_MAX_TEXT + 1) : text.size();
    Loss loss{untouched(), which == kEach, {}};
    std::copy_n(wanted[which == kEach && !draws_.rarely() ? 4 : draws_.below(8)], kInputs, gradients);
    cermet_linear_cross_entropy_options options{};
    options.size = draws_.someSize(sizeof(options));
    options.gradients = hardly() ? nullptr : gradients;
    options.gradient_count = !draws_.rarely()       ? kInputs
                             : draws_.below(2) == 0 ? static_cast<uint64_t>(draws_.below(6))
                                                    : draws_.number(64) >> draws_.below(64);
    if (options.gradient_count > sizeof(gradients) && options.gradient_count <= length) // which would be read
      options.gradient_count = sizeof(gradients);
    const uint64_t budgets[] = {0, kRowBytes, 2 * kRowBytes, 5 * kRowBytes, kRowBytes - 1, draws_.number(8)};
    options.budget = budgets[draws_.below(6)];
    options.product = draws_.below(2) ? nullptr : product;
    options.product_user = productUser();
    const char* targets[] = {"host", "auto", "sm_90", "sm_1", ""};
    const char* target = targets[draws_.rarely() ? draws_.below(5) : 0];
    // What a shorter struct leaves out is none.
    const bool isRead = options.size >= offsetof(cermet_linear_cross_entropy_options, budget);
    if (!draws_.ended(cermet_linear_cross_entropy_prepare(context, hardly() ? nullptr : text.data(), length,
                                                          hardly() ? nullptr : target, 0, hardly() ? nullptr : &options,
                                                          hardly() ? nullptr : &loss.handle),
                      "prepare a loss", loss.handle, untouched()))
      return;
    if (isRead && options.gradients && options.gradient_count == kInputs)
      std::copy_n(gradients, kInputs, loss.gradients);
    losses_.push_back(loss);
  }

  void launch() {
    const Loss loss = draws_.any(losses_);
    Given given;
    const int32_t whole = draws_.below(4) > 0 ? right(loss, given) : wrong(given);
    const int32_t count = draws_.rarely() ? draws_.below(kMostTensors + 2) - 1 : whole;
    const cermet_tensor* tensors = hardly() ? nullptr : given.tensors;
    size_t bytes = 0x5a5a;
    const bool isSized =
        draws_.ended(cermet_linear_cross_entropy_workspace_size(loss.handle, tensors, std::min(count, kMostTensors),
                                                                hardly() ? nullptr : &bytes),
                     "workspace size of a loss", bytes, size_t(0x5a5a)) &&
        bytes != 0x5a5a;
    // Memory of exactly what was asked for, which is little where tensors have memory.
    constexpr size_t kAlignment = 256, kMost = size_t(1) << 20;
    const size_t room = isSized && bytes <= kMost ? bytes : 0;
    const std::unique_ptr<char, void (*)(void*)> workspace(
        static_cast<char*>(
            std::aligned_alloc(kAlignment, std::max(kAlignment, (room + kAlignment - 1) / kAlignment * kAlignment))),
        std::free);
    state() = {static_cast<Product::Outcome>(draws_.rarely() ? draws_.below(4) : 0), nullptr};
    if (std::none_of(lent_.begin(), lent_.end(), [&](const Loss& each) { return each.handle == loss.handle; }))
      state().caller = loss.handle;
    // Of one row the label may name no column.
    int64_t& label = reinterpret_cast<int64_t*>(base(3))[draws_.below(8)];
    const int64_t before = std::exchange(label, draws_.rarely() ? 8 : 1);
    std::memcpy(kept(), memory(0), sizeof(Memory));
    const cermet_status status = cermet_linear_cross_entropy_launch(
        loss.handle, nullptr, tensors, std::min(count, kMostTensors),
        hardly() ? nullptr : workspace.get() + (hardly() ? 64 : 0), hardly() ? room / 2 : room);
    if (status == CERMET_INVALID_ARGUMENT || status == CERMET_UNSUPPORTED) { // before anything is written
      EXPECT_EQ(std::memcmp(kept(), memory(0), sizeof(Memory)), 0) << cermet_error_message();
    }
    label = before;
    if (status == CERMET_INTERNAL && std::strstr(cermet_error_message(), kThrown))
      ++draws_.failed;
    else
      launched += draws_.ended(status, "launch a loss");
  }
  int launched = 0;

private:
  // A call has many arguments, each of which is wrong by itself.
  bool hardly() { return draws_.below(32) == 0; }

  struct Product {
    enum Outcome { Works, Fails, Throws, Destroys } outcome = Works;
    cermet_linear_cross_entropy* caller = nullptr; // what it may destroy
  };
  static Product& state() {
    static Product state;
    return state;
  }
  static cermet_linear_cross_entropy* untouched() { return Draws::untouched<cermet_linear_cross_entropy*>(); }
  static constexpr const char* kThrown = "as the caller wanted";

  // A tensor's elements lie to both sides of the place where it begins, as its strides may be below 0.
  static constexpr int kEachMemory = 1280, kBase = 576; // of 8 bytes
  using Memory = int64_t[kMostTensors][kEachMemory];
  static char* memory(int tensor) {
    alignas(256) static Memory memory;
    static const bool isLabelled = [] {
      for (int at = 0; at < kEachMemory; ++at)
        memory[3][at] = at % 9 - 1;
      return true;
    }();
    return reinterpret_cast<char*>(isLabelled ? memory[tensor] : nullptr);
  }
  static char* kept() {
    alignas(256) static Memory kept;
    return reinterpret_cast<char*>(kept);
  }
  static char* base(int tensor) { return memory(tensor) + kBase * sizeof(int64_t); }

  struct Given {
    int64_t sizes[kMostTensors][3], strides[kMostTensors][3];
    cermet_tensor tensors[kMostTensors];
  };
  static constexpr int64_t kExtents[] = {2, 1, 3, 8, 0, int64_t(1) << 62, -1, 9};

  // What the loss takes, laid out in several ways; sometimes one thing of it is wrong. Returns how many these are.
  int32_t right(const Loss& loss, Given& given) {
    struct Shape {
      int rows, rank; // the first dimensions that are rows, of all
      cermet_dtype dtype;
      bool isWide; // whose last dimension the others do not step into
    };
    constexpr Shape inputs[] = {
        {2, 3, CERMET_F32, true}, {0, 2, CERMET_F32, true}, {0, 1, CERMET_F32, false}, {2, 2, CERMET_I64, false}};
    std::vector<Shape> shapes(inputs, inputs + kInputs);
    if (loss.isEach)
      shapes.push_back({2, 2, CERMET_F32, false});
    shapes.push_back({0, 0, CERMET_F32, false});
    for (int input = 0; input < kInputs; ++input)
      if (loss.gradients[input])
        shapes.push_back(inputs[input]);
    const int64_t rows[] = {kExtents[draws_.below(6)], kExtents[draws_.below(6)]};
    const bool isDense = draws_.below(2);
    const auto count = static_cast<int>(std::min<size_t>(shapes.size(), kMostTensors));
    for (int index = 0; index < count; ++index) {
      const Shape& shape = shapes[index];
      int64_t *sizes = given.sizes[index], *strides = given.strides[index];
      for (int dim = 0; dim < 3; ++dim)
        sizes[dim] = dim < shape.rows ? rows[dim] : 8;
      // Dense, apart, with its first two dimensions the other way round, backwards.
      const int layout = isDense ? 0 : draws_.below(4);
      const int64_t steps[2][4] = {{1, 3, 1, -1}, {8, 17, 8, -8}};
      uint64_t stride = static_cast<uint64_t>(steps[shape.isWide][layout]);
      const int stepping = shape.rank - shape.isWide;
      for (int at = stepping; at-- > 0;) {
        const int dim = layout == 2 ? stepping - 1 - at : at;
        strides[dim] = static_cast<int64_t>(stride);
        stride *= static_cast<uint64_t>(sizes[dim]);
      }
      if (shape.isWide)
        strides[shape.rank - 1] = 1;
      given.tensors[index] = {base(index), sizes, strides, shape.rank, shape.dtype};
      if (shape.rows > 0 && std::max(rows[0], rows[1]) > 8)
        given.tensors[index].data = nullptr;
    }
    if (draws_.rarely())
      spoil(given, draws_.below(count));
    return count;
  }
  void spoil(Given& given, int index) {
    cermet_tensor& tensor = given.tensors[index];
    const int dim = draws_.below(3);
    switch (draws_.below(7)) {
    case 0:
      tensor.data = nullptr;
      break;
    case 1:
      tensor.sizes = nullptr;
      break;
    case 2:
      tensor.strides = nullptr;
      break;
    case 3:
      tensor.rank = draws_.below(5) - 1;
      tensor.rank = std::min(tensor.rank, 3);
      break;
    case 4:
      tensor.dtype = draws_.below(14) - 1;
      break;
    case 5:
      given.sizes[index][dim] = kExtents[draws_.below(8)];
      if (given.sizes[index][dim] > 8)
        tensor.data = nullptr;
      break;
    default:
      given.strides[index][dim] = draws_.below(2) ? draws_.below(18) - 1 : static_cast<int64_t>(draws_.number(64));
      if (std::abs(given.strides[index][dim] >> 5) > 0)
        tensor.data = nullptr;
    }
  }
  int32_t wrong(Given& given) {
    for (int index = 0; index < kMostTensors; ++index) {
      int64_t *sizes = given.sizes[index], *strides = given.strides[index];
      given.tensors[index] = {draws_.rarely() ? nullptr : base(index), draws_.rarely() ? nullptr : sizes,
                              draws_.rarely() ? nullptr : strides, draws_.below(5) - 1, draws_.below(14) - 1};
      given.tensors[index].rank = std::min(given.tensors[index].rank, 3);
      for (int dim = 0; dim < 3; ++dim) {
        sizes[dim] = kExtents[draws_.below(8)];
        strides[dim] = draws_.below(18) - 1;
        if (sizes[dim] > 8)
          given.tensors[index].data = nullptr;
      }
    }
    return kMostTensors;
  }

  Draws& draws_;
  const std::vector<Loss> lent_; // the first of what follows
  std::vector<Loss> losses_;
};

} // namespace cermet
