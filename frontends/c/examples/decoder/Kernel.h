// A prepared graph, and the scratch memory that its launches need.
#pragma once
#include "Device.h"
#include "Graphs.h"

class Kernel {
public:
  Kernel() = default;
  Kernel(Device& device, const cermet::Context& context, const Graph& graph)
      : device_(&device), executable_(context.prepare(context.compile(graph.text, device.target()))) {}

  // Inputs, then outputs, in the graph's order. Work of the device's stream.
  void operator()(const std::vector<cermet::Tensor>& tensors) {
    const size_t bytes = executable_.workspaceSize(tensors);
    if (bytes > workspace_.bytes()) {
      device_->wait(); // for launches that have the old one
      workspace_ = Memory(*device_, bytes);
    }
    executable_.launch(device_->stream(), tensors, {workspace_.at(0), workspace_.bytes()});
  }

private:
  Device* device_ = nullptr;
  cermet::Executable executable_;
  Memory workspace_;
};
