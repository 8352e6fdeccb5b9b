// cermet.hpp: cermet.h for C++17. Handles that destroy themselves, and failures that are exceptions.
//
//     cermet::Context context;                                             // or with options, see cermet::Options
//     const cermet::Plan plan = context.compile(text, "auto");
//     const cermet::Executable run = context.prepare(plan);
//     run.launch(stream, {{x, CERMET_F32, {rows, 256}}, {w, CERMET_F32, {256}}, {y, CERMET_F32, {rows, 256}}},
//     workspace);
//
// Nothing is added to what cermet.h says of threads, forks and lifetimes: an executable needs neither its plan nor its
// context to stay. Handles move and are not copied. One that was moved from, or that is empty, is an INVALID_ARGUMENT
// where it is used. `get` gives the handle for what this header has not. All of it is inline: no other library is
// needed.
#ifndef CERMET_HPP
#define CERMET_HPP

#include <cermet.h>
#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

// A failed call: its status, and as `what` its name and the message.
class Error : public std::runtime_error {
public:
  explicit Error(cermet_status status)
      : std::runtime_error(std::string(cermet_status_name(status)) + ": " + cermet_error_message()), status_(status) {}
  cermet_status status() const noexcept { return status_; }

private:
  cermet_status status_;
};

inline void check(cermet_status status) {
  if (status != CERMET_OK)
    throw Error(status);
}

namespace detail {
struct Destroy {
  void operator()(cermet_context* context) const noexcept { cermet_context_destroy(context); }
  void operator()(cermet_plan* plan) const noexcept { cermet_plan_destroy(plan); }
  void operator()(cermet_executable* executable) const noexcept { cermet_executable_destroy(executable); }
  void operator()(cermet_linear_cross_entropy* loss) const noexcept { cermet_linear_cross_entropy_destroy(loss); }
  void operator()(char* text) const noexcept { cermet_string_free(text); }
};
template <typename Handle> using Owned = std::unique_ptr<Handle, Destroy>;

// An answer of the library's as a string of the caller's.
inline std::string taken(char* text) {
  return Owned<char>(text).get();
}
} // namespace detail

// A tensor of the caller's, with its sizes and strides in elements; without strides it is dense and row-major.
class Tensor {
public:
  Tensor(void* data, cermet_dtype dtype, std::initializer_list<int64_t> sizes) : Tensor(data, dtype, sizes, {}) {}
  Tensor(void* data, cermet_dtype dtype, std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides)
      : data_(data), dtype_(dtype), rank_(static_cast<int32_t>(sizes.size())) {
    if (sizes.size() > CERMET_MAX_RANK || (strides.size() != 0 && strides.size() != sizes.size()))
      throw std::invalid_argument("cermet::Tensor: " + std::to_string(sizes.size()) + " sizes and " +
                                  std::to_string(strides.size()) + " strides, expected at most " +
                                  std::to_string(CERMET_MAX_RANK) + " sizes and as many strides or none");
    std::copy(sizes.begin(), sizes.end(), sizes_.begin());
    std::copy(strides.begin(), strides.end(), strides_.begin());
    if (strides.size() == 0)
      for (int64_t dim = rank_, stride = 1; dim-- > 0; stride *= sizes_[dim])
        strides_[dim] = stride;
  }
  // What cermet.h takes; it refers to this object.
  cermet_tensor get() const noexcept { return {data_, sizes_.data(), strides_.data(), rank_, dtype_}; }

private:
  void* data_;
  cermet_dtype dtype_;
  int32_t rank_;
  std::array<int64_t, CERMET_MAX_RANK> sizes_{}, strides_{};
};

namespace detail {
inline std::vector<cermet_tensor> views(const std::vector<Tensor>& tensors) {
  std::vector<cermet_tensor> result;
  result.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    result.push_back(tensor.get());
  return result;
}
} // namespace detail

// Scratch memory of the caller's, aligned to 256 bytes.
struct Workspace {
  void* data = nullptr;
  size_t size = 0;
};

class Plan {
public:
  Plan() = default;
  explicit Plan(cermet_plan* plan) : plan_(plan) {}
  cermet_plan* get() const noexcept { return plan_.get(); }
  const char* json() const noexcept { return cermet_plan_json(get()); }
  int32_t inputCount() const noexcept { return cermet_plan_input_count(get()); }
  int32_t outputCount() const noexcept { return cermet_plan_output_count(get()); }
  // Names and symbols belong to the plan.
  cermet_value_info input(int32_t index) const { return described(cermet_plan_input, index); }
  cermet_value_info output(int32_t index) const { return described(cermet_plan_output, index); }

private:
  template <typename Describe> cermet_value_info described(Describe describe, int32_t index) const {
    cermet_value_info info{};
    info.size = sizeof(info);
    check(describe(get(), index, &info));
    return info;
  }
  detail::Owned<cermet_plan> plan_;
};

class Executable {
public:
  Executable() = default;
  explicit Executable(cermet_executable* executable) : executable_(executable) {}
  cermet_executable* get() const noexcept { return executable_.get(); }

  size_t workspaceSize(const std::vector<Tensor>& tensors) const {
    size_t size = 0;
    const std::vector<cermet_tensor> given = detail::views(tensors);
    check(cermet_workspace_size(get(), given.data(), static_cast<int32_t>(given.size()), &size));
    return size;
  }
  void launch(void* stream, const std::vector<Tensor>& tensors, Workspace workspace = {}) const {
    const std::vector<cermet_tensor> given = detail::views(tensors);
    launch(stream, given.data(), static_cast<int32_t>(given.size()), workspace);
  }
  // The same without a copy of the tensors, for whom that matters.
  void launch(void* stream, const cermet_tensor* tensors, int32_t count, Workspace workspace = {}) const {
    check(cermet_launch(get(), stream, tensors, count, workspace.data, workspace.size));
  }
  void setExternal(cermet_external callback, void* user) {
    check(cermet_executable_set_external(get(), callback, user));
  }

private:
  detail::Owned<cermet_executable> executable_;
};

// cermet_linear_cross_entropy_options with its size set.
struct LinearCrossEntropyOptions : cermet_linear_cross_entropy_options {
  LinearCrossEntropyOptions() : cermet_linear_cross_entropy_options{} {
    size = sizeof(cermet_linear_cross_entropy_options);
  }
};

class LinearCrossEntropy {
public:
  LinearCrossEntropy() = default;
  explicit LinearCrossEntropy(cermet_linear_cross_entropy* loss) : loss_(loss) {}
  cermet_linear_cross_entropy* get() const noexcept { return loss_.get(); }

  size_t workspaceSize(const std::vector<Tensor>& tensors) const {
    size_t size = 0;
    const std::vector<cermet_tensor> given = detail::views(tensors);
    check(cermet_linear_cross_entropy_workspace_size(get(), given.data(), static_cast<int32_t>(given.size()), &size));
    return size;
  }
  void launch(void* stream, const std::vector<Tensor>& tensors, Workspace workspace = {}) const {
    const std::vector<cermet_tensor> given = detail::views(tensors);
    check(cermet_linear_cross_entropy_launch(get(), stream, given.data(), static_cast<int32_t>(given.size()),
                                             workspace.data, workspace.size));
  }

private:
  detail::Owned<cermet_linear_cross_entropy> loss_;
};

// cermet_context_options with its size set: `Options options; options.packs = "model.cpack";`
struct Options : cermet_context_options {
  Options() : cermet_context_options{} { size = sizeof(cermet_context_options); }
};

class Context {
public:
  explicit Context(const Options& options = {}) {
    cermet_context* made = nullptr;
    check(cermet_context_create(&options, &made));
    context_.reset(made);
  }
  cermet_context* get() const noexcept { return context_.get(); }

  Plan compile(std::string_view text, const std::string& target = "auto") const {
    cermet_plan* made = nullptr;
    check(cermet_compile(get(), text.data(), text.size(), target.c_str(), &made));
    return Plan(made);
  }
  Executable prepare(const Plan& plan, int32_t device = 0) const {
    cermet_executable* made = nullptr;
    check(cermet_prepare(get(), plan.get(), device, &made));
    return Executable(made);
  }
  LinearCrossEntropy prepare(std::string_view text, const std::string& target, const LinearCrossEntropyOptions& options,
                             int32_t device = 0) const {
    cermet_linear_cross_entropy* made = nullptr;
    check(
        cermet_linear_cross_entropy_prepare(get(), text.data(), text.size(), target.c_str(), device, &options, &made));
    return LinearCrossEntropy(made);
  }
  cermet_counters counters() const {
    cermet_counters result{};
    result.size = sizeof(result);
    check(cermet_context_counters(get(), &result));
    return result;
  }
  // Its entries, bytes and digest, as JSON.
  std::string writePack(const std::string& path) const {
    char* json = nullptr;
    check(cermet_context_write_pack(get(), path.c_str(), &json));
    return detail::taken(json);
  }
  std::string targets() const {
    char* json = nullptr;
    check(cermet_targets(get(), &json));
    return detail::taken(json);
  }

private:
  detail::Owned<cermet_context> context_;
};

} // namespace cermet
#endif
