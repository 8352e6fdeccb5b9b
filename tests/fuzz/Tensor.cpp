#include "tests/fuzz/Tensor.h"
#include "frontends/tools/Numbers.h"
#include "runtime/abi/ElementType.h"
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

namespace cermet::fuzz {

constexpr int64_t kGuard = 64, kAlignment = 64; // bytes

Layout randomLayout(std::mt19937_64& random, bool isStrided) {
  Layout layout;
  if (random() % 3 == 0)
    layout.pad = std::array{1, 2, 8}[random() % 3];
  if (random() % 4 == 0)
    layout.shift = 1;
  if (isStrided)
    layout.step = 1 + int64_t(random() % 3);
  return layout;
}

Tensor::Tensor(cermet_dtype dtype, llvm::ArrayRef<int64_t> sizes, const Layout& layout, bool guard)
    : dtype(dtype), sizes(sizes.begin(), sizes.end()), strides(sizes.size()), memory(nullptr, std::free) {
  int64_t span = 1, next = layout.step;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next = next * std::max<int64_t>(sizes[i], 1) + layout.pad;
    span += (sizes[i] - 1) * strides[i];
    count *= sizes[i];
  }
  int width = elementBytes(dtype);
  front = (guard ? kGuard : 0) + layout.shift * width;
  bytes = front + (count ? span * width : 0) + (guard ? kGuard : 0);
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, std::max<int64_t>(bytes, 1)) != 0)
    std::abort();
  memory.reset(static_cast<char*>(block));
  std::memset(block, 0xff, bytes);
}

int64_t Tensor::offset(int64_t element) const {
  int64_t result = 0;
  for (size_t i = sizes.size(); i-- > 0;) {
    result += element % sizes[i] * strides[i];
    element /= sizes[i];
  }
  return front + result * elementBytes(dtype);
}

void Tensor::write(const ir::Array& array) {
  for (int64_t i = 0; i < count; ++i)
    tools::writeNumber(memory.get() + offset(i), dtype, 0, array.data[i]);
}

ir::Array Tensor::read() const {
  ir::Array array{{sizes.begin(), sizes.end()}, std::vector<double>(count)};
  for (int64_t i = 0; i < count; ++i)
    array.data[i] = tools::readNumber(memory.get() + offset(i), dtype, 0);
  return array;
}

cermet_tensor Tensor::view() const {
  return {memory.get() + front, sizes.data(), strides.data(), int32_t(sizes.size()), dtype};
}

void Tensor::seal() {
  sealed.assign(memory.get(), memory.get() + bytes);
}

std::string Tensor::damage(bool isOutput) const {
  std::vector<char> now(memory.get(), memory.get() + bytes);
  if (isOutput)
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(now.data() + offset(i), sealed.data() + offset(i), elementBytes(dtype));
  auto [changed, was] = std::mismatch(now.begin(), now.end(), sealed.begin());
  if (changed == now.end())
    return "";
  return fmt::format("byte {} of {} (the tensor begins at {}) was changed", changed - now.begin(), bytes, front);
}

} // namespace cermet::fuzz
