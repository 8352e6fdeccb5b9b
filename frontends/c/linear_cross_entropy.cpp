// The C interface's loss without logits: checks of pointers and handles. What it does is the runtime's.
#include "frontends/c/Guard.h"
#include "frontends/c/Sized.h"
#include "runtime/launch/LinearCrossEntropy.h"

struct cermet_linear_cross_entropy : cermet::Handle<cermet::LinearCrossEntropy> {};

using namespace cermet::guard;
using cermet::error;
using cermet::Handles;
using cermet::LinearCrossEntropy;
using cermet::Status;

cermet_status cermet_linear_cross_entropy_prepare(cermet_context* context, const char* text, size_t length,
                                                  const char* target, int32_t device,
                                                  const cermet_linear_cross_entropy_options* options,
                                                  cermet_linear_cross_entropy** loss) {
  return guarded([&]() -> Status {
    const char* function = "cermet_linear_cross_entropy_prepare";
    CERMET_REQUIRE_CONTEXT(function);
    CERMET_REQUIRE_IN(function, text);
    CERMET_REQUIRE_IN(function, target);
    CERMET_REQUIRE_IN(function, loss);
    cermet_linear_cross_entropy_options chosen{};
    if (options)
      CERMET_RETURN_IF_ERROR(cermet::readSized("cermet_linear_cross_entropy_prepare: options",
                                               "cermet_linear_cross_entropy_options", options, chosen));
    if (!chosen.gradients && chosen.gradient_count != 0)
      return error(CERMET_INVALID_ARGUMENT, "{}: options->gradients is NULL, expected an array of {}", function,
                   chosen.gradient_count);
    if (chosen.gradient_count > length) // an input takes more than a byte of text
      return error(CERMET_INVALID_ARGUMENT, "{}: options->gradient_count is {}, expected one for each input", function,
                   chosen.gradient_count);
    LinearCrossEntropy::Options read;
    if (chosen.gradient_count)
      read.gradients.assign(chosen.gradients, chosen.gradients + chosen.gradient_count);
    read.budget = chosen.budget;
    read.product = chosen.product;
    read.user = chosen.product_user;
    auto prepared = CERMET_TRY(LinearCrossEntropy::prepare(context->shared(), {text, length}, target, device, read));
    *loss = Handles<cermet_linear_cross_entropy>::make(std::move(prepared));
    return {};
  });
}

void cermet_linear_cross_entropy_destroy(cermet_linear_cross_entropy* loss) {
  Handles<cermet_linear_cross_entropy>::destroy(loss);
}

cermet_status cermet_linear_cross_entropy_workspace_size(const cermet_linear_cross_entropy* loss,
                                                         const cermet_tensor* tensors, int32_t count, size_t* size) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_linear_cross_entropy_workspace_size", loss);
    CERMET_REQUIRE_ARRAY("cermet_linear_cross_entropy_workspace_size", tensors, count);
    CERMET_REQUIRE_IN("cermet_linear_cross_entropy_workspace_size", size);
    return (*loss)->workspaceSize(tensors, count, size);
  });
}

cermet_status cermet_linear_cross_entropy_launch(const cermet_linear_cross_entropy* loss, void* stream,
                                                 const cermet_tensor* tensors, int32_t count, void* workspace,
                                                 size_t workspace_size) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_linear_cross_entropy_launch", loss);
    CERMET_REQUIRE_ARRAY("cermet_linear_cross_entropy_launch", tensors, count);
    const auto kept = loss->shared(); // if the callback destroys it
    return kept->launch(stream, tensors, count, workspace, workspace_size);
  });
}
