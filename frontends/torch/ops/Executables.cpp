#include "frontends/torch/ops/Executables.h"
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

namespace cermet::torch_ops {
namespace {

struct Key {
  int64_t graph;
  int32_t device;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  // Graph keys are hashes already.
  size_t operator()(const Key& key) const { return size_t(key.graph) ^ (size_t(uint32_t(key.device)) << 1); }
};

using Table = std::unordered_map<Key, const Executable*, KeyHash>;

// Publishing copies the table and swaps a pointer, so a launch reads it without a lock. Old tables stay, since a reader
// may still be in one: some hundred small maps in the life of a process.
std::atomic<const Table*> current{nullptr};
std::mutex publishing;
// A forked process finds it free and the table whole.
[[maybe_unused]] const int forks =
    pthread_atfork([] { publishing.lock(); }, [] { publishing.unlock(); }, [] { publishing.unlock(); });
std::vector<std::unique_ptr<const Table>>& tables() {
  static auto* all = new std::vector<std::unique_ptr<const Table>>();
  return *all;
}

std::atomic<cermet_torch_prepare_callback> prepareCallback{nullptr};

cermet_status describeInputs(const cermet_plan* plan, Executable& executable, const int8_t* strided,
                             std::unordered_map<std::string, Size>& symbols) {
  for (int32_t i = 0; i < cermet_plan_input_count(plan); ++i) {
    cermet_value_info info{};
    info.size = sizeof(info);
    if (cermet_status status = cermet_plan_input(plan, i, &info); status != CERMET_OK)
      return status;
    executable.inputs.push_back({info.name, info.dtype, info.rank, strided && strided[i] != 0});
    for (int32_t axis = 0; axis < info.rank; ++axis)
      if (info.symbols[axis])
        symbols.try_emplace(info.symbols[axis], Size{-1, i, axis});
  }
  return CERMET_OK;
}

// False where `order` is no permutation of `rank` dimensions.
bool readOrder(const int8_t* order, int32_t rank, std::vector<int8_t>& dimensions) {
  uint32_t seen = 0;
  for (int32_t i = 0; i < rank; ++i) {
    const int8_t axis = !order || order[0] < 0 ? int8_t(i) : order[i];
    if (axis < 0 || axis >= rank || (seen & 1u << axis))
      return false;
    seen |= 1u << axis;
    dimensions.push_back(axis);
  }
  return true;
}

cermet_status describeOutputs(const cermet_plan* plan, Executable& executable,
                              const std::unordered_map<std::string, Size>& symbols, const int8_t* orders,
                              const int32_t* places) {
  for (int32_t i = 0; i < cermet_plan_output_count(plan); ++i) {
    cermet_value_info info{};
    info.size = sizeof(info);
    if (cermet_status status = cermet_plan_output(plan, i, &info); status != CERMET_OK)
      return status;
    Output output{info.dtype, {}, {}, places ? places[i] : -1};
    if (output.place >= int32_t(executable.inputs.size()))
      return CERMET_INVALID_ARGUMENT;
    if (!readOrder(orders ? orders + i * CERMET_MAX_RANK : nullptr, info.rank, output.order))
      return CERMET_INVALID_ARGUMENT;
    for (int32_t axis = 0; axis < info.rank; ++axis) {
      if (!info.symbols[axis]) {
        output.sizes.push_back({info.sizes[axis], -1, -1});
        continue;
      }
      auto found = symbols.find(info.symbols[axis]);
      if (found == symbols.end())
        return CERMET_UNSUPPORTED;
      output.sizes.push_back(found->second);
    }
    executable.outputs.push_back(std::move(output));
  }
  return CERMET_OK;
}

// Whether some launch needs a workspace. It holds buffers and partial rows, and each of them has elements where every
// symbol is 1.
bool asksForWorkspace(const Executable& executable, const cermet_plan* plan) {
  std::vector<cermet_value_info> infos(executable.inputs.size());
  std::vector<cermet_tensor> tensors;
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].size = sizeof(infos[i]);
    if (cermet_plan_input(plan, int32_t(i), &infos[i]) != CERMET_OK)
      return true;
    for (int32_t axis = 0; axis < infos[i].rank; ++axis)
      if (infos[i].symbols[axis])
        infos[i].sizes[axis] = 1;
    tensors.push_back({nullptr, infos[i].sizes, infos[i].sizes, infos[i].rank, infos[i].dtype});
  }
  size_t bytes = 0;
  return cermet_workspace_size(executable.handle, tensors.data(), int32_t(tensors.size()), &bytes) != CERMET_OK ||
         bytes > 0;
}

} // namespace

const Executable* find(int64_t key, int32_t device) {
  const Table* table = current.load(std::memory_order_acquire);
  if (!table)
    return nullptr;
  auto found = table->find({key, device});
  return found == table->end() ? nullptr : found->second;
}

const Executable& prepare(int64_t key, int32_t device) {
  std::array<char, 4096> error{};
  auto callback = prepareCallback.load(std::memory_order_acquire);
  if (!callback)
    throw std::runtime_error("cermet: the op library is loaded without its Python package; import cermet.backend");
  int32_t status = callback(key, device, error.data(), error.size());
  const Executable* executable = find(key, device);
  if (status != 0 || !executable)
    throw std::runtime_error(std::string("cermet: ") + (error[0] ? error.data() : "the graph could not be prepared"));
  return *executable;
}

} // namespace cermet::torch_ops

using namespace cermet::torch_ops;

void cermet_torch_set_prepare(cermet_torch_prepare_callback callback) {
  prepareCallback.store(callback, std::memory_order_release);
}

cermet_status cermet_torch_publish(int64_t key, int32_t device, const char* name, const cermet_executable* handle,
                                   const cermet_plan* plan, const int8_t* orders, const int32_t* places,
                                   const int8_t* strided) {
  if (!name || !handle || !plan)
    return CERMET_INVALID_ARGUMENT;
  try {
    auto executable = std::make_unique<Executable>(Executable{handle, name, {}, {}, true});
    std::unordered_map<std::string, Size> symbols;
    if (cermet_status status = describeInputs(plan, *executable, strided, symbols); status != CERMET_OK)
      return status;
    if (cermet_status status = describeOutputs(plan, *executable, symbols, orders, places); status != CERMET_OK)
      return status;
    executable->workspace = asksForWorkspace(*executable, plan);
    std::lock_guard lock(publishing);
    const Table* old = current.load(std::memory_order_acquire);
    auto table = old ? std::make_unique<Table>(*old) : std::make_unique<Table>();
    table->insert_or_assign({key, device}, executable.release());
    current.store(table.get(), std::memory_order_release);
    tables().push_back(std::move(table));
    return CERMET_OK;
  } catch (...) {
    return CERMET_INTERNAL;
  }
}
