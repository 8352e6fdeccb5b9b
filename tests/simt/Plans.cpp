#include "tests/simt/Plans.h"
#include "compiler/cuda/Emit.h"
#include "runtime/abi/ElementType.h"
#include "runtime/abi/RowArguments.h"
#include "runtime/plan/RowSpace.h"
#include "tests/simt/Machine.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>

namespace cermet::simt {

const char* const kNeedsDense = "a view of rows that lie apart";

std::string PlanKernels::symbol(size_t step, const std::string& entry) {
  return fmt::format("step{}_{}", step, entry);
}

PlanKernels::PlanKernels(const Plan& plan, Alter alter) : specs(plan.steps.size()) {
  std::string text;
  for (size_t step = 0; step < specs.size(); ++step) {
    if (plan.steps[step].kind != StepKind::Kernel)
      throw std::runtime_error("step " + plan.steps[step].name + " is no kernel");
    if (std::string problem = parse(plan.steps[step].spec, specs[step]); !problem.empty())
      throw std::runtime_error(problem);
    std::string kernel = emitKernel(specs[step]);
    if (alter)
      kernel = alter(std::move(kernel));
    text += fmt::format("#undef KERNEL_NAME\n#define KERNEL_NAME(entry) step{0}_##entry\nnamespace step{0} {{\n{1}}}\n",
                        step, kernel);
  }
  compiled = std::make_unique<Library>(text);
}

namespace {

int64_t ceilDivide(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

class Launch {
public:
  Launch(const Plan& plan, const PlanKernels& kernels, const std::vector<cermet_tensor>& tensors,
         const PlanOptions& options)
      : plan(plan), kernels(kernels), options(options), symbols(plan.symbols.size(), -1), places(plan.values.size()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const cermet_tensor& given = tensors[i];
      Place& place = places[i];
      place.base = static_cast<char*>(given.data);
      place.sizes.assign(given.sizes, given.sizes + given.rank);
      place.strides.assign(given.strides, given.strides + given.rank);
      for (int dim = 0; dim < given.rank; ++dim)
        if (const Dimension& dimension = plan.values[i].dims[dim]; dimension.symbolic())
          symbols[dimension.symbol] = given.sizes[dim];
    }
  }

  std::string run() {
    for (int value = plan.inputs + plan.outputs; value < plan.firstView(); ++value)
      allocate(value);
    for (size_t value = plan.firstView(); value < plan.values.size(); ++value)
      if (!view(static_cast<int>(value)))
        return kNeedsDense;
    for (const PlanStep& step : plan.steps)
      for (const PlanProgram& program : step.programs)
        for (const PlanOperand& operand : program.operands)
          if (operand.movesVectors() && hasAnotherStep(places[operand.value]))
            return kNeedsDense;
    for (size_t step = 0; step < plan.steps.size(); ++step)
      if (std::string problem = launch(step); !problem.empty())
        return plan.steps[step].name + ": " + problem;
    return "";
  }

private:
  struct Place {
    char* base = nullptr;
    std::vector<int64_t> sizes, strides;
    std::unique_ptr<char[]> own; // a buffer's memory, of exactly its extent
  };

  int64_t sizeOf(const Dimension& dimension) const {
    return dimension.symbolic() ? symbols[dimension.symbol] : dimension.size;
  }
  std::vector<int64_t> sizesOf(int value) const {
    std::vector<int64_t> sizes;
    for (int dim = 0; dim < plan.values[value].rank; ++dim)
      sizes.push_back(sizeOf(plan.values[value].dims[dim]));
    return sizes;
  }

  void allocate(int value) {
    Place& place = places[value];
    place.sizes = sizesOf(value);
    place.strides.resize(place.sizes.size());
    int64_t elements = 1;
    for (size_t dim = place.sizes.size(); dim-- > 0;) {
      place.strides[dim] = elements;
      elements *= place.sizes[dim];
    }
    const size_t bytes = elements * elementBytes(plan.values[value].dtype);
    place.own.reset(new char[bytes]);
    place.base = place.own.get();
    std::memset(place.base, 0xff, bytes);
  }

  bool view(int value) {
    const PlanView& described = *plan.view(value);
    const Place& source = places[described.source];
    Place& place = places[value];
    place.base = source.base;
    place.sizes = sizesOf(value);
    const size_t rank = place.sizes.size();
    place.strides.assign(rank, 0);
    switch (described.kind) {
    case ViewKind::Slice:
      place.strides = source.strides;
      for (size_t dim = 0; dim < rank; ++dim)
        place.base += described.starts[dim] * source.strides[dim] * elementBytes(plan.values[value].dtype);
      return true;
    case ViewKind::Transpose:
      for (size_t dim = 0; dim < rank; ++dim)
        place.strides[dim] = source.strides[described.permutation[dim]];
      return true;
    case ViewKind::Broadcast:
      for (size_t dim = rank, from = source.sizes.size(); from-- > 0;)
        if (--dim, source.sizes[from] == place.sizes[dim])
          place.strides[dim] = source.strides[from];
      return true;
    case ViewKind::Reshape:
      return reshape(source, place);
    }
    return false;
  }

  // Whether columns that a kernel takes to be neighbours are none.
  static bool hasAnotherStep(const Place& place) {
    return !place.sizes.empty() && place.sizes.back() > 1 && place.strides.back() != 1 &&
           !std::count(place.sizes.begin(), place.sizes.end(), 0);
  }

  // An element of the result is an element of the source: found by counting, one dimension at a time.
  static bool reshape(const Place& source, Place& place) {
    int64_t elements = 1;
    for (int64_t size : source.sizes)
      elements *= size;
    const auto offsetOf = [&](int64_t index) {
      int64_t offset = 0;
      for (size_t dim = source.sizes.size(); dim-- > 0;) {
        offset += index % source.sizes[dim] * source.strides[dim];
        index /= source.sizes[dim];
      }
      return offset;
    };
    int64_t inner = 1; // elements that one step of the dimension passes
    for (size_t dim = place.sizes.size(); dim-- > 0;) {
      place.strides[dim] = elements > 0 && place.sizes[dim] > 1 ? offsetOf(inner) : 1;
      inner *= place.sizes[dim];
    }
    for (int64_t index = 0; index < elements; ++index) {
      int64_t offset = 0, rest = index;
      for (size_t dim = place.sizes.size(); dim-- > 0;) {
        offset += rest % place.sizes[dim] * place.strides[dim];
        rest /= place.sizes[dim];
      }
      if (offset != offsetOf(index))
        return false;
    }
    return true;
  }

  static int64_t stepOf(const PlanOperand& operand, const Place& place) {
    return operand.stepDim < 0 ? 1 : place.strides[operand.stepDim];
  }

  std::string launch(size_t index) {
    const PlanStep& step = plan.steps[index];
    const KernelSpec& spec = kernels.spec(index);
    std::vector<RowArguments> arguments(step.programs.size());
    bool isAligned = true;
    int64_t rows = 0;
    for (size_t i = 0; i < step.programs.size(); ++i) {
      if (std::string problem = bind(step.programs[i], arguments[i], isAligned); !problem.empty())
        return problem;
      rows += arguments[i].rows;
    }
    if (rows == 0)
      return "";

    const bool isVector = !options.scalar && (isAligned || options.forceVector);
    Grid grid{0, 1, step.threads, step.sharedBytes};
    std::vector<char> packed;
    std::vector<std::vector<float>> partials(step.programs.size());
    int64_t foldBlocks = 0;
    int accumulators = 0;
    for (size_t i = 0; i < step.programs.size(); ++i) {
      const PlanProgram& program = step.programs[i];
      const Schedule& schedule = spec.programs[i].schedule;
      const int64_t vector = isVector ? program.vector : 1;
      const int64_t groups =
          schedule.skeleton == Skeleton::Flat
              ? ceilDivide(arguments[i].rows * program.columns, schedule.threads * vector)
          : schedule.skeleton == Skeleton::Column
              ? std::min(ceilDivide(program.columns, schedule.threadsPerRow * vector), options.blocks)
          : schedule.skeleton == Skeleton::Turned
              ? ceilDivide(arguments[i].rows, program.rowsPerBlock) * ceilDivide(program.columns, program.rowsPerBlock)
              : ceilDivide(arguments[i].rows, schedule.threads / schedule.threadsPerRow);
      arguments[i].partialRows = schedule.blocksPerSm ? std::min(groups, options.blocks) : groups;
      grid.x += arguments[i].partialRows;
      partials[i].assign(size_t(program.accumulators) * arguments[i].partialRows * program.columns, NAN);
      arguments[i].partials = partials[i].data();
      foldBlocks += ceilDivide(program.columns, kFoldColumns);
      accumulators = std::max(accumulators, program.accumulators);
      const char* begin = reinterpret_cast<const char*>(&arguments[i]);
      packed.insert(packed.end(), begin, begin + argumentBytes(program.operands.size()));
    }

    const KernelEntries entries = kernelEntries(spec);
    const auto kernel = [&](const std::string& entry) {
      return kernels.library().kernel(PlanKernels::symbol(index, entry));
    };
    std::string problem = simt::run(kernel(isVector ? entries.vector : entries.scalar), kernels.library().calls(),
                                    packed.data(), grid, options.seed);
    if (problem.empty() && accumulators > 0)
      problem = simt::run(kernel(entries.fold), kernels.library().calls(), packed.data(),
                          {foldBlocks, accumulators, kFoldColumns * kFoldSlices, 0}, options.seed + 1);
    return problem;
  }

  // Everything but the number of blocks. `isAligned` becomes false where vectors cannot be moved.
  std::string bind(const PlanProgram& program, RowArguments& arguments, bool& isAligned) {
    int64_t extent[kMaxRank];
    RowStrides stride[kMaxOperands];
    int64_t rows = 1;
    int walking = 0;
    for (int dim = 0; dim < program.rowRank; ++dim)
      rows *= extent[dim] = sizeOf(program.rowSpace[dim]);
    if (rows == 0) {
      std::memset(static_cast<void*>(&arguments), 0x5c, sizeof arguments);
      arguments.rows = 0;
      zeroColumns(program);
      return "";
    }
    for (const PlanOperand& operand : program.operands)
      if (operand.walksRows()) {
        if (operand.value < 0)
          countRows(program.rowRank, extent, operand, stride[walking]);
        else
          for (int dim = 0; dim < program.rowRank; ++dim)
            stride[walking][dim] = operand.axis[dim] < 0 ? 0 : places[operand.value].strides[operand.axis[dim]];
        ++walking;
      }
    if (program.leading >= 0)
      sortRows(program.rowRank, extent, walking, stride, program.leading);
    const int rank = collapseRows(program.rowRank, extent, walking, stride), unused = kMaxRowExtents - rank;
    if (rank > kMaxRowExtents)
      return fmt::format("{} row extents are left", rank);
    if (options.extraRows) {
      rows = rows / extent[0] * (extent[0] + options.extraRows);
      extent[0] += options.extraRows;
    }

    arguments.rows = rows;
    arguments.rowRank = rank;
    for (int position = 0; position < kMaxRowExtents; ++position)
      arguments.extent[position] = position < unused ? 1 : extent[position - unused];
    const RowOperand* like = nullptr; // where a vector does not divide a row
    walking = 0;
    for (size_t i = 0; i < program.operands.size(); ++i) {
      const PlanOperand& operand = program.operands[i];
      RowOperand& argument = arguments.operand[i];
      if (operand.movesVectors() && operand.walksRows() && !like && program.columns % program.vector != 0)
        like = &argument;
      argument.base = operand.value < 0 ? nullptr : places[operand.value].base;
      argument.step = operand.value < 0 ? 1 : stepOf(operand, places[operand.value]);
      if (operand.walksRows()) {
        for (int position = unused; position < kMaxRowExtents; ++position) {
          argument.stride[position] = stride[walking][position - unused];
          const int64_t beside = like ? like->stride[position] : 0;
          isAligned &= !operand.movesVectors() || (argument.stride[position] - beside) % program.vector == 0;
        }
        ++walking;
      }
      if (operand.kind == OperandKind::Gathered || operand.kind == OperandKind::List) {
        argument.stride[kGatheredStride] = places[operand.value].strides[0];
        argument.stride[kGatheredRows] = places[operand.value].sizes[0];
        isAligned &= !operand.movesVectors() || argument.stride[kGatheredStride] % program.vector == 0;
      }
      if (operand.movesVectors())
        isAligned &= reinterpret_cast<uintptr_t>(argument.base) %
                         (program.vector * elementBytes(plan.values[operand.value].dtype)) ==
                     0;
    }
    setDivisors(arguments, int(program.operands.size()));
    return "";
  }

  // What is summed over no rows.
  void zeroColumns(const PlanProgram& program) {
    for (const PlanOperand& operand : program.operands)
      if (operand.output && operand.kind == OperandKind::Column) {
        const Place& place = places[operand.value];
        const int64_t bytes = elementBytes(plan.values[operand.value].dtype);
        for (int64_t column = 0; column < program.columns; ++column)
          std::memset(place.base + column * stepOf(operand, place) * bytes, 0, bytes);
      }
  }

  const Plan& plan;
  const PlanKernels& kernels;
  const PlanOptions& options;
  std::vector<int64_t> symbols;
  std::vector<Place> places;
};

} // namespace

std::string run(const Plan& plan, const PlanKernels& kernels, const std::vector<cermet_tensor>& tensors,
                const PlanOptions& options) {
  return Launch(plan, kernels, tensors, options).run();
}

} // namespace cermet::simt
