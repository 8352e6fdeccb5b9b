// A checkpoint's weights as the decoder computes with them: on the device, of its element type. What lies in this
// machine's memory in that type already is used where the file is mapped.
#pragma once
#include "Checkpoint.h"
#include "Device.h"
#include "Graphs.h"

class Weights {
public:
  // A weight that the checkpoint lacks, or that this program has no use for, is an error.
  Weights(Device& device, const cermet::Context& context, const Checkpoint& checkpoint, const Sizes& sizes);
  void* at(const std::string& name) const { return weights_.at(name); }

private:
  std::map<std::string, void*> weights_;
  std::vector<Memory> kept_;
};

// The element types of a checkpoint's weights that are not the one that is computed with.
std::vector<std::string> otherTypes(const Checkpoint& checkpoint, const std::string& dtype);
