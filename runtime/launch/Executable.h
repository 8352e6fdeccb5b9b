// Executable: a plan with every kernel compiled and loaded, ready to launch any number of times from any thread.
// prepare does all that can fail slowly; launch (Launch.cpp) checks the caller's tensors and starts the steps: on
// success it takes no lock, allocates nothing and makes no string.
#pragma once
#include "runtime/context/Context.h"
#include "runtime/launch/Checks.h"
#include "runtime/launch/FrameBlocks.h"
#include <algorithm>
#include <memory>

namespace cermet {

// Where columns are summed over rows, a host launch splits its rows into parts of 16, or into 2048 parts: a short chain
// of additions is accurate, and a sum's order, and so its value, depends on neither the threads nor the machine.
inline int64_t hostPartialRows(int64_t rows) {
  return std::min<int64_t>(rows / 16 + (rows % 16 != 0), 2048);
}

class Executable {
public:
  static Result<std::shared_ptr<Executable>> prepare(std::shared_ptr<Context> context, std::shared_ptr<const Plan> plan,
                                                     int device);

  // `tensors` as cermet.h says; the count of workspaceSize may leave the outputs out.
  Status workspaceSize(const cermet_tensor* tensors, int32_t count, size_t* size) const;
  Status launch(void* stream, const cermet_tensor* tensors, int32_t count, void* workspace, size_t workspaceSize) const;
  // What a launch with these refuses before it runs a step.
  Status check(const cermet_tensor* tensors, int32_t count, void* workspace, size_t workspaceSize) const;
  // What the calling thread's last launch that ended with CERMET_OUT_OF_RANGE asked for; row -1: a callback said so.
  static const HostFault& lastFault();
  // Its row is one of a piece, in front of which there are so many.
  static void countFaultFrom(int64_t rows);
  // To be set before the first launch.
  void setExternal(cermet_external callback, void* user);
  // Whether a launch calls back, and so may be told there to destroy what it runs from.
  bool callsBack() const { return firstExternal_ != nullptr; }

private:
  struct Kernel { // of one step; unused where the step is external
    CUfunction vectorEntry = nullptr, scalarEntry = nullptr, fold = nullptr;
    HostEntry hostVectorEntry = nullptr, hostScalarEntry = nullptr;
    HostFold hostFold = nullptr;
    int64_t largestGrid = INT64_MAX; // of each program of a persistent kernel
  };
  struct ValueUse {
    bool unitStride = false; // a kernel moves vectors of its last dimension
    int64_t denseBytes = 0;  // of one element
  };
  // Where a value is during one launch.
  struct View {
    char* base;
    const int64_t* sizes;
    const int64_t* strides;
  };
  struct Frame;

  Executable(std::shared_ptr<Context> context, std::shared_ptr<const Plan> plan);
  std::vector<Context::NeededKernel> kernels() const;
  Status prepareCuda(int device);
  Status prepareHost();

  // LaunchViews.cpp
  Status deriveViews(Frame& frame) const;
  Status deriveSlice(int value, View& view, int64_t* strides, const Frame& frame) const;
  Status deriveReshape(int value, const View& view, int64_t* strides, const Frame& frame) const;
  Status deriveBroadcast(int value, const View& view, int64_t* strides, const Frame& frame) const;
  // Launch.cpp
  Status bind(const cermet_tensor* tensors, int32_t count, void* workspace, size_t workspaceSize, Frame& frame) const;
  Status bindInputs(const cermet_tensor* tensors, Frame& frame) const;
  Status checkTensor(int value, const cermet_tensor& tensor, Frame& frame) const;
  Status checkData(const cermet_tensor* tensors) const;
  Status layOut(Frame& frame, size_t* bytes) const;
  Status run(void* stream, Frame& frame) const;
  Status runKernel(const PlanStep& step, const Kernel& kernel, void* stream, const Frame& frame) const;
  Status bindProgram(const PlanStep& step, const PlanProgram& program, const Frame& frame, RowArguments& arguments,
                     uint64_t& misaligned) const;
  Status runExternal(const PlanStep& step, void* stream, const Frame& frame) const;
  Status zeroColumnOutputs(const PlanProgram& program, void* stream, const Frame& frame) const;
  // `arguments`: one for each program.
  Status launchCuda(const PlanStep& step, const Kernel& kernel, bool vector, void* stream, RowArguments*) const;
  Status launchHost(const PlanStep& step, const Kernel& kernel, bool vector, RowArguments*) const;
  Status checkOnDevice(void* stream, const cermet_tensor* tensors, const void* workspace) const;
  Status checkPointer(const void* pointer, const std::string& what) const;
  Status checkStream(void* stream) const;
  Status externalMissing() const;

  // The messages of failed checks.
  std::string place(int value) const;
  Status describeFault(const PlanStep& step, const HostFault& fault) const;
  Status describeCallback(const PlanStep& step, cermet_status status) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<const Plan> plan_;
  std::vector<ValueUse> uses_;  // one per value
  std::vector<Kernel> kernels_; // one per step
  mutable FrameBlocks frames_;
  std::shared_ptr<const CudaDevice> device_; // null on host
  ThreadPool* pool_ = nullptr;               // on host
  const Ranges ranges_;
  bool check_ = false;
  const PlanStep* firstExternal_ = nullptr;
  cermet_external external_ = nullptr;
  void* externalUser_ = nullptr;
};

} // namespace cermet
