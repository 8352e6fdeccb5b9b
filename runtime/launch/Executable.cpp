#include "runtime/launch/Executable.h"
#include "runtime/abi/ElementType.h"
#include "runtime/launch/Frame.h"
#include "runtime/device/Target.h"

namespace cermet {

Executable::Executable(std::shared_ptr<Context> context, std::shared_ptr<const Plan> plan)
    : context_(std::move(context)), plan_(std::move(plan)), uses_(plan_->values.size()), kernels_(plan_->steps.size()),
      frames_(Frame::bytesFor(*plan_)), ranges_(context_->ranges()), check_(context_->config().check) {
  for (const PlanStep& step : plan_->steps) {
    for (const PlanProgram& program : step.programs)
      for (const PlanOperand& operand : program.operands)
        if (operand.movesVectors())
          uses_[operand.value].unitStride |= program.columns > 1;
    if (step.kind == StepKind::External && !firstExternal_)
      firstExternal_ = &step;
  }
  for (size_t value = 0; value < uses_.size(); ++value)
    uses_[value].denseBytes = elementBytes(plan_->values[value].dtype);
  frames_.giveBack(frames_.take()); // the first launch finds one
}

Result<std::shared_ptr<Executable>> Executable::prepare(std::shared_ptr<Context> context,
                                                        std::shared_ptr<const Plan> plan, int device) {
  std::shared_ptr<Executable> executable(new Executable(std::move(context), std::move(plan)));
  CERMET_RETURN_IF_ERROR(isHostTarget(executable->plan_->target) ? executable->prepareHost()
                                                                 : executable->prepareCuda(device));
  return executable;
}

std::vector<Context::NeededKernel> Executable::kernels() const {
  std::vector<Context::NeededKernel> kernels;
  for (const PlanStep& step : plan_->steps)
    if (step.kind == StepKind::Kernel) {
      kernels.push_back({step.spec, {step.vectorEntry, step.scalarEntry}});
      if (!step.foldEntry.empty())
        kernels.back().entries.push_back(step.foldEntry);
    }
  return kernels;
}

Status Executable::prepareCuda(int ordinal) {
  device_ = CERMET_TRY(context_->device(ordinal));
  CERMET_RETURN_IF_ERROR(checkDeviceRuns(plan_->target, device_->properties(), ordinal));
  const auto images = CERMET_TRY(context_->cudaImages(kernels(), device_));
  for (size_t index = 0; index < kernels_.size(); ++index) {
    const PlanStep& step = plan_->steps[index];
    if (step.kind != StepKind::Kernel)
      continue;
    Kernel& kernel = kernels_[index];
    const CudaImage& image = *images.at(step.spec);
    const std::pair<const std::string*, CUfunction*> entries[] = {{&step.vectorEntry, &kernel.vectorEntry},
                                                                  {&step.scalarEntry, &kernel.scalarEntry},
                                                                  {&step.foldEntry, &kernel.fold}};
    for (auto [name, function] : entries) {
      if (name->empty())
        continue;
      *function = CERMET_TRY(image.entry(*name, function == &kernel.fold ? 0 : step.sharedBytes));
    }
    if (const int blocksPerSm = step.programs[0].blocksPerSm; blocksPerSm > 0)
      kernel.largestGrid = int64_t(device_->properties().multiprocessors) * blocksPerSm;
  }
  return {};
}

Status Executable::prepareHost() {
  CERMET_RETURN_IF_ERROR(checkHostRuns(plan_->target));
  pool_ = &context_->pool();
  const auto images = CERMET_TRY(context_->hostImages(kernels()));
  for (size_t index = 0; index < kernels_.size(); ++index) {
    const PlanStep& step = plan_->steps[index];
    if (step.kind != StepKind::Kernel)
      continue;
    const HostImage& image = *images.at(step.spec);
    Kernel& kernel = kernels_[index];
    kernel.hostVectorEntry = reinterpret_cast<HostEntry>(CERMET_TRY(image.entry(step.vectorEntry)));
    kernel.hostScalarEntry = reinterpret_cast<HostEntry>(CERMET_TRY(image.entry(step.scalarEntry)));
    if (!step.foldEntry.empty())
      kernel.hostFold = reinterpret_cast<HostFold>(CERMET_TRY(image.entry(step.foldEntry)));
  }
  return {};
}

void Executable::setExternal(cermet_external callback, void* user) {
  external_ = callback;
  externalUser_ = user;
}

} // namespace cermet
