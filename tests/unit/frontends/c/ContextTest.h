// A context of the C interface without a cache directory, with a compiler of the test's choice and without a GPU.
#pragma once
#include "frontends/c/cermet.h"
#include <gtest/gtest.h>
#include <stdlib.h>

namespace cermet {

struct ContextTest : testing::Test {
  cermet_context* context = nullptr;

  // The process's environment is read once, so a suite says this before any test makes a context.
  static void useCompiler(const char* library) {
    setenv("CERMET_COMPILER_LIBRARY", library, 1);
    setenv("CERMET_CUDA_LIBRARY", "libno-such-driver.so", 1);
    setenv("CERMET_THREADS", "2", 1);
    setenv("CERMET_CACHE_DIR", "", 1); // where a test's options say nothing of it
  }
  void SetUp() override {
    cermet_context_options options{};
    options.size = sizeof(options);
    options.cache_directory = "";
    ASSERT_EQ(cermet_context_create(&options, &context), CERMET_OK) << cermet_error_message();
  }
  void TearDown() override { cermet_context_destroy(context); }
};

} // namespace cermet
