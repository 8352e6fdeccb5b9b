// The launch path. A step of it that costs more than a few nanoseconds needs a reason.
#include "runtime/launch/Callback.h"
#include "runtime/launch/Frame.h"
#include "runtime/plan/RowSpace.h"
#include <algorithm>
#include <cstring>
#include <mutex>

namespace cermet {

constexpr int64_t kLargestGridX = (int64_t(1) << 31) - 1;
constexpr int64_t kWorthSharing = int64_t(1) << 15; // elements for which waking threads costs less than it saves
constexpr int kPartsPerThread = 4;

namespace {

int64_t ceilDivide(int64_t value, int64_t by) {
  return value / by + (value % by != 0);
}

uint64_t alignUp(uint64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) & ~uint64_t(kWorkspaceAlignment - 1);
}

// The number of rows of a program, or -1 where rows times columns does not fit 63 bits.
int64_t rowsOf(const PlanProgram& program, const int64_t* symbols) {
  int64_t rows = 1, elements;
  for (int dim = 0; dim < program.rowRank; ++dim)
    if (__builtin_mul_overflow(rows, sizeOf(program.rowSpace[dim], symbols), &rows))
      return -1;
  return __builtin_mul_overflow(rows, program.columns, &elements) ? -1 : rows;
}

Status tooManyRows(const Plan& plan, const PlanStep& step) {
  return error(CERMET_INVALID_ARGUMENT, "{}: kernel '{}' would have more than 2^63 elements", plan.name, step.name);
}

// Blocks of the main kernel that run a program; on the host, parts that have partial rows.
int64_t blocksOf(const PlanProgram& program, int threads, int64_t rows, int vector, int64_t largestGrid) {
  const int64_t elements = int64_t(threads) * vector; // of a block that moves one vector a thread
  switch (program.skeleton) {
  case Skeleton::Flat:
    return std::min(ceilDivide(rows * program.columns, elements), largestGrid);
  case Skeleton::Row:
    return std::min(ceilDivide(rows, program.rowsPerBlock), largestGrid);
  case Skeleton::Column:
    return rows == 0 ? 0 : ceilDivide(program.columns, elements / program.rowsPerBlock);
  case Skeleton::Turned:
    return ceilDivide(rows, program.rowsPerBlock) * ceilDivide(program.columns, program.rowsPerBlock); // tiles
  }
  __builtin_unreachable();
}

// Brings the programs' arguments to where the kernel reads them, each right behind the one before.
void packArguments(const PlanStep& step, RowArguments* arguments) {
  char* end = reinterpret_cast<char*>(arguments);
  for (size_t index = 0; index < step.programs.size(); ++index) {
    const size_t bytes = argumentBytes(step.programs[index].operands.size());
    if (index > 0)
      std::memmove(end, &arguments[index], bytes);
    end += bytes;
  }
}

} // namespace

// Gives every buffer and the partial rows their place in the workspace.
Status Executable::layOut(Frame& frame, size_t* bytes) const {
  uint64_t used = 0;
  const int first = plan_->inputs + plan_->outputs;
  for (int value = first; value < plan_->firstView(); ++value) {
    const PlanValue& buffer = plan_->values[value];
    int64_t* sizes = frame.ownDims[value - first];
    int64_t* strides = sizes + kMaxRank;
    int64_t stride = 1, size = uses_[value].denseBytes;
    bool overflows = false;
    for (int dim = buffer.rank; dim-- > 0;) {
      sizes[dim] = sizeOf(buffer.dims[dim], frame.symbols);
      strides[dim] = stride;
      overflows |= __builtin_mul_overflow(stride, sizes[dim], &stride);
      overflows |= __builtin_mul_overflow(size, sizes[dim], &size);
    }
    if (overflows || __builtin_add_overflow(used, uint64_t(size), &used) || used > uint64_t(INT64_MAX)) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT, "{}: the workspace would have more than 2^63 bytes", plan_->name);
    frame.views[value] = {reinterpret_cast<char*>(frame.workspace + (used - uint64_t(size))), sizes, strides};
    used = alignUp(used);
  }
  // Steps follow one another on one stream, so all share one area of partial rows.
  uint64_t partials = 0;
  for (size_t index = 0; index < kernels_.size(); ++index) {
    const PlanStep& step = plan_->steps[index];
    if (step.programs.empty() || step.programs[0].accumulators == 0)
      continue;
    uint64_t all = 0;
    for (const PlanProgram& program : step.programs) {
      const int64_t rows = rowsOf(program, frame.symbols);
      if (rows < 0) [[unlikely]]
        return tooManyRows(*plan_, step);
      const int64_t blocks =
          device_ ? blocksOf(program, step.threads, rows, 1, kernels_[index].largestGrid) : hostPartialRows(rows);
      uint64_t size;
      if (__builtin_mul_overflow(uint64_t(blocks) * sizeof(float), uint64_t(program.accumulators * program.columns),
                                 &size) ||
          __builtin_add_overflow(all, size, &all)) [[unlikely]]
        return tooManyRows(*plan_, step);
    }
    partials = std::max(partials, all);
  }
  frame.partials = reinterpret_cast<float*>(frame.workspace + used);
  *bytes = used + alignUp(partials);
  return {};
}

Status Executable::workspaceSize(const cermet_tensor* tensors, int32_t count, size_t* size) const {
  if (count < plan_->inputs)
    return error(CERMET_INVALID_ARGUMENT, "{}: {} tensors given, expected at least the {} inputs", plan_->name, count,
                 plan_->inputs);
  Frame frame(*this);
  CERMET_RETURN_IF_ERROR(bindInputs(tensors, frame));
  size_t bytes = 0;
  CERMET_RETURN_IF_ERROR(layOut(frame, &bytes));
  *size = bytes;
  return {};
}

// All that is refused before a step runs.
Status Executable::bind(const cermet_tensor* tensors, int32_t count, void* workspace, size_t workspaceSize,
                        Frame& frame) const {
  CERMET_RETURN_IF_ERROR(bindInputs(tensors, frame));
  for (int output = plan_->inputs; output < count; ++output)
    CERMET_RETURN_IF_ERROR(checkTensor(output, tensors[output], frame));
  CERMET_RETURN_IF_ERROR(checkData(tensors));
  frame.workspace = reinterpret_cast<uintptr_t>(workspace);
  size_t needed = 0;
  CERMET_RETURN_IF_ERROR(layOut(frame, &needed));
  CERMET_RETURN_IF_ERROR(checkWorkspace(plan_->name, workspace, workspaceSize, needed, "cermet_workspace_size"));
  CERMET_RETURN_IF_ERROR(deriveViews(frame));
  if (firstExternal_ && !external_) [[unlikely]]
    return externalMissing();
  return {};
}

Status Executable::check(const cermet_tensor* tensors, int32_t count, void* workspace, size_t workspaceSize) const {
  Frame frame(*this);
  return bind(tensors, count, workspace, workspaceSize, frame);
}

Status Executable::launch(void* stream, const cermet_tensor* tensors, int32_t count, void* workspace,
                          size_t workspaceSize) const {
  if (count != plan_->inputs + plan_->outputs) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{}: {} tensors given, expected {} ({} inputs, then {} outputs)", plan_->name,
                 count, plan_->inputs + plan_->outputs, plan_->inputs, plan_->outputs);
  const Range range(ranges_, RangeKind::Launch, plan_->name);
  Frame frame(*this);
  CERMET_RETURN_IF_ERROR(bind(tensors, count, workspace, workspaceSize, frame));
  if (device_) {
    CERMET_RETURN_IF_ERROR(device_->driver().checkOfThisProcess());
    const ContextBinding binding(device_->table(), device_->context());
    CERMET_RETURN_IF_ERROR(device_->driver().check(binding.result(), "cuCtxSetCurrent"));
    if (check_) [[unlikely]]
      CERMET_RETURN_IF_ERROR(checkOnDevice(stream, tensors, workspace));
    CERMET_RETURN_IF_ERROR(run(stream, frame));
  } else {
    CERMET_RETURN_IF_ERROR(run(stream, frame));
  }
  Counters::raise(context_->counters().launches);
  return {};
}

Status Executable::run(void* stream, Frame& frame) const {
  for (size_t index = 0; index < kernels_.size(); ++index) {
    const PlanStep& step = plan_->steps[index];
    const Range range(ranges_, RangeKind::Launch, step.name);
    CERMET_RETURN_IF_ERROR(step.kind == StepKind::Kernel ? runKernel(step, kernels_[index], stream, frame)
                                                         : runExternal(step, stream, frame));
  }
  return {};
}

Status Executable::runKernel(const PlanStep& step, const Kernel& kernel, void* stream, const Frame& frame) const {
  RowArguments arguments[kMaxPrograms];
  uint64_t misaligned = 0; // bits below a vector's size in any address or stride that vectors are moved at
  bool anyRows = false;
  for (size_t index = 0; index < step.programs.size(); ++index) {
    const PlanProgram& program = step.programs[index];
    const int64_t rows = rowsOf(program, frame.symbols);
    if (rows < 0) [[unlikely]]
      return tooManyRows(*plan_, step);
    arguments[index].rows = rows;
    arguments[index].partials = program.accumulators > 0 ? frame.partials : nullptr;
    if (rows == 0)
      CERMET_RETURN_IF_ERROR(zeroColumnOutputs(program, stream, frame));
    else
      CERMET_RETURN_IF_ERROR(bindProgram(step, program, frame, arguments[index], misaligned));
    anyRows |= rows > 0;
  }
  if (!anyRows)
    return {};
  if (device_)
    return launchCuda(step, kernel, misaligned == 0, stream, arguments);
  return launchHost(step, kernel, misaligned == 0, arguments);
}

// The argument of a program that has rows, but for what the number of blocks decides.
Status Executable::bindProgram(const PlanStep& step, const PlanProgram& program, const Frame& frame,
                               RowArguments& arguments, uint64_t& misaligned) const {
  const int operands = static_cast<int>(program.operands.size());
  int64_t extent[kMaxRank];
  RowStrides stride[kMaxOperands]; // of the operands that walk rows, packed
  int walking = 0;
  for (int dim = 0; dim < program.rowRank; ++dim)
    extent[dim] = sizeOf(program.rowSpace[dim], frame.symbols);
  for (const PlanOperand& operand : program.operands) {
    if (!operand.walksRows())
      continue;
    if (operand.value < 0)
      countRows(program.rowRank, extent, operand, stride[walking]);
    else
      for (int dim = 0; dim < program.rowRank; ++dim)
        stride[walking][dim] = operand.axis[dim] < 0 ? 0 : frame.views[operand.value].strides[operand.axis[dim]];
    ++walking;
  }
  if (program.leading >= 0)
    sortRows(program.rowRank, extent, walking, stride, program.leading);
  const int rank = collapseRows(program.rowRank, extent, walking, stride);
  if (rank > kMaxRowExtents) [[unlikely]]
    return error(CERMET_UNSUPPORTED,
                 "{}: the rows of kernel '{}' have {} dimensions whose strides do not collapse, expected at most {}; "
                 "copy the strided tensors to dense ones",
                 plan_->name, step.name, rank, kMaxRowExtents);

  arguments.rowRank = rank;
  const int unused = kMaxRowExtents - rank;
  for (int position = 0; position < kMaxRowExtents; ++position)
    arguments.extent[position] = position < unused ? 1 : extent[position - unused];
  const uint64_t below = uint64_t(program.vector - 1);
  const RowOperand* like = nullptr; // whose rows begin where the others' must, within a vector
  walking = 0;
  for (int index = 0; index < operands; ++index) {
    const PlanOperand& operand = program.operands[index];
    RowOperand& argument = arguments.operand[index];
    const bool walks = operand.walksRows(), vectors = operand.movesVectors();
    if (vectors && walks && !like && program.columns % program.vector != 0)
      like = &argument;
    argument.base = operand.value < 0 ? nullptr : frame.views[operand.value].base;
    argument.step = operand.stepDim < 0 ? 1 : frame.views[operand.value].strides[operand.stepDim];
    for (int position = 0; position < kMaxRowExtents; ++position) {
      const bool used = walks && position >= unused;
      argument.stride[position] = used ? stride[walking][position - unused] : 0;
      const int64_t alike = like ? like->stride[position] : 0;
      misaligned |= vectors && walks ? uint64_t(argument.stride[position] - alike) & below : 0;
    }
    if (operand.kind == OperandKind::Gathered || operand.kind == OperandKind::List) {
      const View& source = frame.views[operand.value];
      argument.stride[kGatheredStride] = source.strides[0];
      argument.stride[kGatheredRows] = source.sizes[0];
      misaligned |= vectors ? uint64_t(source.strides[0]) & below : 0;
    }
    walking += walks;
    if (vectors)
      misaligned |=
          reinterpret_cast<uintptr_t>(argument.base) & uint64_t(program.vector * uses_[operand.value].denseBytes - 1);
  }
  setDivisors(arguments, operands);
  return {};
}

Status Executable::launchCuda(const PlanStep& step, const Kernel& kernel, bool vector, void* stream,
                              RowArguments* arguments) const {
  int64_t blocks = 0, foldBlocks = 0;
  int accumulators = 0;
  float* partials = arguments[0].partials; // of all programs, one after the other
  for (size_t index = 0; index < step.programs.size(); ++index) {
    const PlanProgram& program = step.programs[index];
    const int64_t rows = arguments[index].rows;
    const int64_t own = blocksOf(program, step.threads, rows, vector ? program.vector : 1, kernel.largestGrid);
    arguments[index].partialRows = own;
    arguments[index].partials = partials;
    if (program.accumulators > 0)
      partials += own * program.accumulators * program.columns;
    foldBlocks += ceilDivide(program.columns, kFoldColumns);
    accumulators = std::max(accumulators, program.accumulators);
    if (__builtin_add_overflow(blocks, own, &blocks) || blocks > kLargestGridX) [[unlikely]]
      return error(CERMET_UNSUPPORTED, "{}: kernel '{}' over {} rows needs {} blocks, a grid has at most {}",
                   plan_->name, step.name, rows, own, kLargestGridX);
  }
  packArguments(step, arguments);
  const DriverTable& driver = device_->table();
  void* parameters[] = {arguments};
  const auto onStream = static_cast<CUstream>(stream);
  CERMET_RETURN_IF_ERROR(device_->driver().check(
      driver.cuLaunchKernel(vector ? kernel.vectorEntry : kernel.scalarEntry, static_cast<unsigned>(blocks), 1, 1,
                            static_cast<unsigned>(step.threads), 1, 1, static_cast<unsigned>(step.sharedBytes),
                            onStream, parameters, nullptr),
      "cuLaunchKernel"));
  if (!kernel.fold)
    return {};
  return device_->driver().check(driver.cuLaunchKernel(kernel.fold, static_cast<unsigned>(foldBlocks),
                                                       static_cast<unsigned>(accumulators), 1, kFoldColumns,
                                                       kFoldSlices, 1, 0, onStream, parameters, nullptr),
                                 "cuLaunchKernel (fold)");
}

// The entry numbers the rows of several programs through.
Status Executable::launchHost(const PlanStep& step, const Kernel& kernel, bool vector, RowArguments* arguments) const {
  struct Work {
    const RowArguments* arguments;
    HostEntry entry;
    int64_t rows, parts;
    std::mutex faulty; // taken by parts that have a fault
    HostFault fault;   // that of the lowest row, whoever is first
  };
  int64_t rows = 0;
  bool worthSharing = false;
  for (size_t index = 0; index < step.programs.size(); ++index) {
    rows += arguments[index].rows;
    worthSharing |= arguments[index].rows * step.programs[index].columns >= kWorthSharing;
  }
  int64_t parts = kernel.hostFold ? hostPartialRows(rows)
                  : worthSharing  ? int64_t(pool_->threads()) * kPartsPerThread
                                  : 1;
  parts = std::min(parts, rows);
  arguments[0].partialRows = kernel.hostFold ? parts : 0;
  packArguments(step, arguments);
  Work work{arguments, vector ? kernel.hostVectorEntry : kernel.hostScalarEntry, rows, parts, {}, {}};
  const auto runPart = [](void* user, int part) {
    Work& work = *static_cast<Work*>(user);
    const int64_t each = work.rows / work.parts, more = work.rows % work.parts;
    const int64_t begin = each * part + std::min<int64_t>(part, more);
    HostFault fault;
    work.entry(work.arguments, begin, begin + each + (part < more), part, &fault);
    if (fault.row >= 0) [[unlikely]] {
      const std::lock_guard lock(work.faulty);
      if (work.fault.row < 0 || fault.row < work.fault.row)
        work.fault = fault;
    }
  };
  if (worthSharing)
    pool_->run(static_cast<int>(parts), runPart, &work);
  else
    for (int part = 0; part < parts; ++part)
      runPart(&work, part);
  if (kernel.hostFold)
    kernel.hostFold(arguments);
  return work.fault.row < 0 ? Status() : describeFault(step, work.fault);
}

// What is summed over no rows is zero.
Status Executable::zeroColumnOutputs(const PlanProgram& program, void* stream, const Frame& frame) const {
  for (const PlanOperand& operand : program.operands) {
    if (!operand.output || operand.kind != OperandKind::Column)
      continue;
    const View& view = frame.views[operand.value];
    const int64_t element = uses_[operand.value].denseBytes;
    const int64_t by = operand.stepDim < 0 ? 1 : view.strides[operand.stepDim];
    const size_t bytes = static_cast<size_t>(by == 1 ? program.columns * element : element);
    for (int64_t column = 0; column < (by == 1 ? 1 : program.columns); ++column) {
      char* base = view.base + column * by * element;
      if (device_)
        CERMET_RETURN_IF_ERROR(device_->driver().check(
            device_->table().cuMemsetD8Async(static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(base)), 0, bytes,
                                             static_cast<CUstream>(stream)),
            "cuMemsetD8Async"));
      else
        std::memset(base, 0, bytes);
    }
  }
  return {};
}

Status Executable::runExternal(const PlanStep& step, void* stream, const Frame& frame) const {
  const size_t count = step.externalOperands.size() + step.externalResults.size();
  for (size_t index = 0; index < count; ++index) {
    const bool operand = index < step.externalOperands.size();
    const int value =
        operand ? step.externalOperands[index] : step.externalResults[index - step.externalOperands.size()];
    const View& view = frame.views[value];
    const PlanValue& described = plan_->values[value];
    frame.tensors[index] = {view.base, view.sizes, view.strides, described.rank, described.dtype};
  }
  std::string threw;
  const cermet_status status = callBack(external_, externalUser_, step.name.c_str(), frame.tensors,
                                        static_cast<int32_t>(step.externalOperands.size()),
                                        static_cast<int32_t>(step.externalResults.size()), stream, threw);
  if (!threw.empty())
    return error(CERMET_INTERNAL, "{}: the callback of the external step {} threw: {}", plan_->name, step.name, threw);
  return status == CERMET_OK ? Status() : describeCallback(step, status);
}

} // namespace cermet
