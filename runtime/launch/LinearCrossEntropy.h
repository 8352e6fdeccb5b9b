// LinearCrossEntropy: a graph's loss of a linear layer, and gradients of it, whose logits come in pieces of rows: a
// piece of them is all that ever exists (docs/c-api.md, "A loss without logits"). For each piece, in this order: the
// product that makes its logits; one kernel that reads them, gives each row's numbers and puts their gradient in their
// place; and the products that this gradient goes into. Products are a callback's, or on the CPU a plain one
// (HostProduct.h). Immutable once prepared; any number of threads may launch it.
#pragma once
#include "runtime/launch/Executable.h"
#include <string_view>
#include <vector>

namespace cermet {

class LinearCrossEntropy {
public:
  struct Options {
    std::vector<uint8_t> gradients; // of each input: 0, 1 in its type, 2 in f32; empty: none
    uint64_t budget = 0;            // bytes of a piece of logits; 0: kLogitsBytes
    cermet_external product = nullptr;
    void* user = nullptr;
  };
  static Result<std::shared_ptr<LinearCrossEntropy>> prepare(const std::shared_ptr<Context>& context,
                                                             std::string_view text, std::string_view target, int device,
                                                             const Options& options);

  // `tensors` are the graph's inputs, its outputs, and the gradients of inputs that were asked for; the count of
  // workspaceSize may end behind the inputs.
  Status workspaceSize(const cermet_tensor* tensors, int32_t count, size_t* size) const;
  Status launch(void* stream, const cermet_tensor* tensors, int32_t count, void* workspace, size_t workspaceSize) const;

private:
  // Where an input of a part comes from, by its number: the graph's inputs, of which the one behind the last are the
  // logits, or results of another part.
  struct Origin {
    enum From { Input, Before, Rows } from;
    int index;
  };
  struct Part { // without `run`: there is nothing to do
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<Executable> run;
    std::vector<Origin> inputs;
  };
  class Call; // one launch, or its workspace (LinearCrossEntropyCall.cpp)

  Status read(const std::shared_ptr<Context>& context, const std::string& answer, const std::string& target,
              int device);
  Status describe(const Plan& graph, const std::vector<uint8_t>& gradients);
  Status findPlaces();
  Status findPassed();

  Plan signature_;                                  // what a launch takes: inputs, outputs and gradients, without steps
  int hidden_ = 0, weight_ = 0;                     // inputs
  int64_t columns_ = 0, width_ = 0;                 // of logits, of the hidden state
  int64_t leading_ = 0;                             // from one row of logits to the next: whole vectors
  int toHidden_ = -1, toWeight_ = -1, toBias_ = -1; // tensors of a launch; -1: not asked for
  bool isDifferentiated_ = false;
  bool inPlace_ = false;    // the logits' gradient takes their memory
  std::vector<int> passed_; // for each number of a row the output that it is; -1: it is none
  Part before_, rows_, after_, roundedWeight_, summedGradient_, summedBias_;
  uint64_t budget_ = 0;
  cermet_external product_ = nullptr;
  void* user_ = nullptr;
  std::shared_ptr<Context> context_;
  std::shared_ptr<const CudaDevice> device_; // null on host
};

} // namespace cermet
