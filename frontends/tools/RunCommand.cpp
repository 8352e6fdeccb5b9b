// `cermet run`: random inputs, poisoned outputs, the time of a launch, and the distance from the float64 interpreter.
#include "frontends/tools/Commands.h"
#include "frontends/tools/Numbers.h"
#include "runtime/abi/ElementType.h"
#include "runtime/launch/Executable.h"
#include "runtime/device/Target.h"
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

namespace cermet::tools {

namespace {

constexpr int64_t kDefaultSize = 128;
constexpr int64_t kLargestTensor = int64_t(1) << 34; // bytes
constexpr double kTimedSeconds = 0.25;
constexpr int kMaxLaunches = 10000;

// Memory that a launch reads and writes: the host's, or a device's through the driver.
class Memory {
public:
  explicit Memory(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {}
  ~Memory() {
    for (void* block : blocks_) {
      if (device_)
        device_->table().cuMemFree_v2(address(block));
      else
        std::free(block);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Result<void*> allocate(size_t bytes) {
    bytes = std::max<size_t>((bytes + 255) / 256 * 256, 256);
    void* block = nullptr;
    if (device_) {
      CUdeviceptr place = 0;
      CERMET_RETURN_IF_ERROR(device_->driver().check(device_->table().cuMemAlloc_v2(&place, bytes), "cuMemAlloc"));
      block = reinterpret_cast<void*>(static_cast<uintptr_t>(place));
    } else if (!(block = std::aligned_alloc(256, bytes))) {
      return error(CERMET_INTERNAL, "out of memory: {} bytes", bytes);
    }
    blocks_.push_back(block);
    return block;
  }
  Status write(void* block, const std::vector<char>& data) {
    if (device_)
      return device_->driver().check(device_->table().cuMemcpyHtoD_v2(address(block), data.data(), data.size()),
                                     "cuMemcpyHtoD");
    std::copy(data.begin(), data.end(), static_cast<char*>(block));
    return {};
  }
  Status read(std::vector<char>& data, const void* block) {
    if (device_)
      return device_->driver().check(device_->table().cuMemcpyDtoH_v2(data.data(), address(block), data.size()),
                                     "cuMemcpyDtoH");
    std::copy_n(static_cast<const char*>(block), data.size(), data.begin());
    return {};
  }

private:
  static CUdeviceptr address(const void* block) { return reinterpret_cast<uintptr_t>(block); }

  std::shared_ptr<const CudaDevice> device_;
  std::vector<void*> blocks_;
};

struct Tensor {
  const PlanValue* value;
  std::vector<int64_t> sizes, strides;
  int64_t elements = 1;
  std::vector<char> data; // on the host
  void* place = nullptr;  // where the launch finds it

  cermet_tensor at(void* memory, int32_t dtype) const {
    return {memory, sizes.data(), strides.data(), value->rank, dtype};
  }
};

Result<std::vector<int64_t>> sizesOf(const Plan& plan, const std::vector<std::string>& given) {
  std::vector<int64_t> sizes(plan.symbols.size(), kDefaultSize);
  for (const std::string& item : given) {
    const size_t equals = item.find('=');
    const auto symbol = std::find(plan.symbols.begin(), plan.symbols.end(), item.substr(0, equals));
    int64_t size = -1;
    if (equals != std::string::npos) {
      const char* end = item.data() + item.size();
      const auto [stop, failure] = std::from_chars(item.data() + equals + 1, end, size);
      if (failure != std::errc() || stop != end)
        size = -1;
    }
    if (size < 0)
      return error(CERMET_INVALID_ARGUMENT, "--size is '{}', expected a symbol and a number, as in r0=4096", item);
    if (symbol == plan.symbols.end())
      return error(CERMET_INVALID_ARGUMENT, "--size names '{}', the graph has: {}", item.substr(0, equals),
                   plan.symbols.empty() ? "no symbolic dimension" : fmt::format("{}", fmt::join(plan.symbols, ", ")));
    sizes[symbol - plan.symbols.begin()] = size;
  }
  return sizes;
}

// Integers of inputs lie below this: where they are numbers of rows or columns, those are there.
int64_t integersBelow(const Plan& plan, const std::vector<int64_t>& symbols) {
  int64_t below = 100;
  for (int input = 0; input < plan.inputs; ++input)
    for (const Dimension& dimension : plan.values[input].dims)
      if (const int64_t size = dimension.symbolic() ? symbols[dimension.symbol] : dimension.size; size > 1)
        below = std::min(below, size);
  return below;
}

Result<Tensor> makeTensor(const PlanValue& value, const std::vector<int64_t>& symbols, int64_t below,
                          std::mt19937_64& random) {
  Tensor tensor;
  tensor.value = &value;
  tensor.sizes.resize(value.rank);
  tensor.strides.resize(value.rank);
  int64_t bytes = elementBytes(value.dtype);
  for (int dim = value.rank; dim-- > 0;) {
    const Dimension& dimension = value.dims[dim];
    tensor.sizes[dim] = dimension.symbolic() ? symbols[dimension.symbol] : dimension.size;
    tensor.strides[dim] = tensor.elements;
    if (__builtin_mul_overflow(bytes, tensor.sizes[dim], &bytes) || bytes > kLargestTensor)
      return error(CERMET_INVALID_ARGUMENT, "'{}' would have more than {} GiB; give smaller sizes", value.name,
                   kLargestTensor >> 30);
    tensor.elements *= tensor.sizes[dim];
  }
  // 0xff is NaN in every float type: an element that is not written shows.
  tensor.data.assign(static_cast<size_t>(bytes), static_cast<char>(0xff));
  if (value.kind != ValueKind::Input)
    return tensor;
  std::normal_distribution<double> normal;
  for (int64_t index = 0; index < tensor.elements; ++index)
    writeNumber(tensor.data.data(), value.dtype, index,
                isFloat(value.dtype)       ? normal(random)
                : value.dtype == CERMET_I1 ? double(random() % 2)
                                           : double(random() % below));
  return tensor;
}

double relativeDistance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t index = 0; index < a.size(); ++index) {
    if (a[index] == b[index] || (std::isnan(a[index]) && std::isnan(b[index]))) {
      size += std::isfinite(b[index]) ? b[index] * b[index] : 0;
      continue; // infinities and NaN too
    }
    difference += (a[index] - b[index]) * (a[index] - b[index]);
    size += b[index] * b[index];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

struct Check {
  double ours, traced, allowed;
  bool passes() const { return ours <= allowed; } // false for NaN
};

// Ours and the traced program's rounding, both as distances from the mathematical value.
Result<std::vector<Check>> checkOutputs(Context& context, const std::string& text, const Plan& plan,
                                        const std::vector<Tensor>& tensors) {
  std::vector<std::vector<double>> wide(tensors.size());
  std::vector<cermet_tensor> wideTensors;
  for (size_t index = 0; index < tensors.size(); ++index) {
    wide[index].resize(static_cast<size_t>(tensors[index].elements));
    for (size_t element = 0; element < wide[index].size(); ++element)
      wide[index][element] =
          readNumber(tensors[index].data.data(), tensors[index].value->dtype, static_cast<int64_t>(element));
    wideTensors.push_back(tensors[index].at(wide[index].data(), tensors[index].value->dtype));
  }
  const std::vector<std::vector<double>> ours(wide.begin() + plan.inputs, wide.end());
  CERMET_RETURN_IF_ERROR(context.compiler().interpret(text, true, wideTensors));
  const std::vector<std::vector<double>> traced(wide.begin() + plan.inputs, wide.end());
  CERMET_RETURN_IF_ERROR(context.compiler().interpret(text, false, wideTensors));
  std::vector<Check> checks;
  for (int output = 0; output < plan.outputs; ++output) {
    const Tensor& tensor = tensors[plan.inputs + output];
    const std::vector<double>& truth = wide[plan.inputs + output];
    Check check{relativeDistance(ours[output], truth), relativeDistance(traced[output], truth), 0};
    // The interpreter adds in float64, a kernel (and the traced program) in float32: a sum of n terms may be off by the
    // root of n roundings.
    int64_t longest = 1;
    for (const Tensor& input : tensors)
      longest = std::max(longest, input.elements / std::max<int64_t>(1, tensor.elements));
    for (int dim = 0; dim < tensor.value->rank; ++dim)
      longest = std::max(longest, tensor.sizes[dim]);
    check.allowed =
        2 * check.traced + unitInLastPlace(tensor.value->dtype) + 0x1p-24 * std::sqrt(static_cast<double>(longest));
    checks.push_back(check);
  }
  return checks;
}

// Seconds of one launch, the median of batches.
Result<double> timeLaunches(const Executable& executable, const CudaDevice* device,
                            const std::vector<cermet_tensor>& tensors, void* workspace, size_t workspaceBytes,
                            int repeat) {
  const int count = static_cast<int>(tensors.size());
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto launch = [&] { return executable.launch(nullptr, tensors.data(), count, workspace, workspaceBytes); };
  const auto finish = [&] {
    return device ? device->driver().check(device->table().cuCtxSynchronize(), "cuCtxSynchronize") : Status();
  };
  auto start = now();
  CERMET_RETURN_IF_ERROR(launch());
  CERMET_RETURN_IF_ERROR(finish());
  const double first = std::chrono::duration<double>(now() - start).count();
  if (repeat <= 0)
    repeat = std::clamp(static_cast<int>(kTimedSeconds / std::max(first, 1e-6)), 5, kMaxLaunches);
  if (!device) {
    std::vector<double> times;
    for (int turn = 0; turn < repeat; ++turn) {
      start = now();
      CERMET_RETURN_IF_ERROR(launch());
      times.push_back(std::chrono::duration<double>(now() - start).count());
    }
    std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
    return times[repeat / 2];
  }
  const DriverTable& driver = device->table();
  CUevent begin = nullptr, end = nullptr;
  float milliseconds = 0;
  CERMET_RETURN_IF_ERROR(device->driver().check(driver.cuEventCreate(&begin, 0), "cuEventCreate"));
  CERMET_RETURN_IF_ERROR(device->driver().check(driver.cuEventCreate(&end, 0), "cuEventCreate"));
  driver.cuEventRecord(begin, nullptr);
  for (int turn = 0; turn < repeat; ++turn)
    CERMET_RETURN_IF_ERROR(launch());
  driver.cuEventRecord(end, nullptr);
  CERMET_RETURN_IF_ERROR(finish());
  CERMET_RETURN_IF_ERROR(
      device->driver().check(driver.cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime"));
  driver.cuEventDestroy_v2(begin);
  driver.cuEventDestroy_v2(end);
  return milliseconds * 1e-3 / repeat;
}

} // namespace

Status runCommand(const Common& common, const RunOptions& options) {
  const auto text = CERMET_TRY(readGraph(options.file));
  const std::shared_ptr<Context> context = CERMET_TRY(makeContext(common));
  std::string target = options.target;
  if (target == "cuda") {
    const auto device = CERMET_TRY(context->device(options.device));
    target = CERMET_TRY(deviceTarget(device->properties()));
  }
  const auto compiled = CERMET_TRY(context->compile(text, target));
  const Plan& plan = *compiled;
  const auto symbols = CERMET_TRY(sizesOf(plan, options.sizes));
  const auto executable = CERMET_TRY(Executable::prepare(context, compiled, options.device));

  std::shared_ptr<const CudaDevice> device;
  if (!isHostTarget(plan.target))
    device = *context->device(options.device); // prepare opened it
  std::optional<ContextBinding> binding;
  if (device)
    binding.emplace(device->table(), device->context());
  Memory memory(device);
  std::mt19937_64 random(options.seed);
  const int64_t below = integersBelow(plan, symbols);
  std::vector<Tensor> tensors;
  std::vector<cermet_tensor> arguments;
  size_t moved = 0;
  for (int index = 0; index < plan.inputs + plan.outputs; ++index) {
    Tensor made = CERMET_TRY(makeTensor(plan.values[index], symbols, below, random));
    made.place = CERMET_TRY(memory.allocate(made.data.size()));
    CERMET_RETURN_IF_ERROR(memory.write(made.place, made.data));
    moved += made.data.size();
    tensors.push_back(std::move(made));
  }
  for (const Tensor& tensor : tensors)
    arguments.push_back(tensor.at(tensor.place, tensor.value->dtype));
  size_t workspaceBytes = 0;
  CERMET_RETURN_IF_ERROR(
      executable->workspaceSize(arguments.data(), static_cast<int>(arguments.size()), &workspaceBytes));
  void* workspace = CERMET_TRY(memory.allocate(workspaceBytes));
  const Result<double> seconds =
      timeLaunches(*executable, device.get(), arguments, workspace, workspaceBytes, options.repeat);
  if (!seconds.ok())
    return seconds.status();

  nlohmann::json report = {{"name", plan.name},
                           {"target", plan.target},
                           {"microseconds", *seconds * 1e6},
                           {"gigabytes_per_second", static_cast<double>(moved) / *seconds * 1e-9},
                           {"bytes", moved},
                           {"outputs", nlohmann::json::array()}};
  if (!common.json)
    fmt::print("{} on {}: {:.2f} us, {:.1f} GB/s ({} bytes)\n", plan.name,
               device ? device->properties().name : plan.target, *seconds * 1e6,
               static_cast<double>(moved) / *seconds * 1e-9, moved);
  Status result;
  if (options.check) {
    for (int output = plan.inputs; output < plan.inputs + plan.outputs; ++output)
      CERMET_RETURN_IF_ERROR(memory.read(tensors[output].data, tensors[output].place));
    const auto checks = CERMET_TRY(checkOutputs(*context, text, plan, tensors));
    for (int output = 0; output < plan.outputs; ++output) {
      const Check& check = checks[output];
      const std::string& name = plan.values[plan.inputs + output].name;
      report["outputs"].push_back({{"name", name},
                                   {"error", check.ours},
                                   {"traced_error", check.traced},
                                   {"allowed", check.allowed},
                                   {"ok", check.passes()}});
      if (!common.json)
        fmt::print("  {:<16} relative error {:.2e}, the traced program's {:.2e}, allowed {:.2e}: {}\n", name,
                   check.ours, check.traced, check.allowed, check.passes() ? "ok" : "WRONG");
      if (!check.passes() && result.ok())
        result = error(CERMET_INTERNAL, "output '{}' has relative error {:.3e}, allowed {:.3e}", name, check.ours,
                       check.allowed);
    }
  }
  if (common.json)
    fmt::print("{}\n", report.dump(1));
  return result.ok() ? dumpStatus(*context) : result;
}

} // namespace cermet::tools
