// A tensor in memory of its own, with room between its rows and around it that nobody may write.
#pragma once
#include "frontends/c/cermet.h"
#include "ir/meaning/Interpreter.h"
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace cermet::fuzz {

// In elements: what lies between two rows, how far the base is off alignment, from one column to the next.
struct Layout {
  int64_t pad = 0, shift = 0, step = 1;
};
Layout randomLayout(std::mt19937_64& random, bool isStrided);

class Tensor {
public:
  // All bytes are 0xff, which is NaN in every float type. Without `guard` the memory ends where the tensor does, for
  // AddressSanitizer to see.
  Tensor(cermet_dtype dtype, llvm::ArrayRef<int64_t> sizes, const Layout& layout, bool guard);

  void write(const ir::Array& array);
  ir::Array read() const;
  cermet_tensor view() const;
  int64_t elements() const { return count; }

  // Remembers every byte; afterwards `damage` says what was written that is no element ("" if nothing was), or of an
  // input, whether anything was.
  void seal();
  std::string damage(bool isOutput) const;

private:
  int64_t offset(int64_t element) const; // in bytes, of the memory

  cermet_dtype dtype;
  std::vector<int64_t> sizes, strides;
  int64_t count = 1, front = 0, bytes = 0;
  std::unique_ptr<char, void (*)(void*)> memory;
  std::vector<char> sealed;
};

} // namespace cermet::fuzz
