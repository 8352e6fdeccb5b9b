// A compiler library that answers what the test put into the question:
//   graph text     "fail CODE MESSAGE"  an error      "JSON"  itself, with $TARGET replaced
//                  "sleep MILLISECONDS"  so long, then itself      "throw"  an int
//                  "linear_loss" in such JSON  what a loss of a linear layer is cut into (LossPlans.h)
//   kernel spec    "fail CODE MESSAGE"  an error      "file PATH"  that file      else the spec itself
// Every build of a kernel is one line in the file that FAKE_COMPILER_LOG names. With FAKE_COMPILER_TOGETHER a build
// ends when that many have begun together, and fails if there are more at once or fewer for ten seconds.
#include "BuildId.h"
#include "runtime/abi/CompilerApi.h"
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#ifndef FAKE_BUILD_ID
#define FAKE_BUILD_ID CERMET_BUILD_ID
#endif

namespace {

void give(cermet_buffer* buffer, const std::string& text) {
  buffer->data = static_cast<char*>(std::malloc(text.size() + 1));
  buffer->size = text.size();
  std::memcpy(buffer->data, text.data(), text.size());
}

bool fails(const std::string& question, cermet_buffer* failure, cermet_status* status) {
  std::istringstream words(question);
  std::string word, message;
  int code = 0;
  if (!(words >> word >> code) || word != "fail")
    return false;
  std::getline(words >> std::ws, message);
  give(failure, message);
  *status = static_cast<cermet_status>(code);
  return true;
}

cermet_status compile(const char* text, size_t length, const char* target, const cermet_compiler_options*,
                      cermet_buffer* answer, cermet_buffer* failure) {
  std::string question(text, length);
  cermet_status status;
  if (fails(question, failure, &status))
    return status;
  if (question == "throw")
    throw 7;
  if (question.rfind("sleep ", 0) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(question.c_str() + 6)));
  for (size_t at; (at = question.find("$TARGET")) != std::string::npos;)
    question.replace(at, 7, target);
  give(answer, question);
  return CERMET_OK;
}

cermet_status match(const char* text, size_t length, const cermet_compiler_options* options, cermet_buffer* answer,
                    cermet_buffer* failure) {
  return compile(text, length, "", options, answer, failure);
}

cermet_status differentiate(const char* text, size_t length, const uint8_t* wanted, int32_t count,
                            const cermet_compiler_options*, cermet_buffer* answer, cermet_buffer*) {
  std::string reply(text, length);
  for (int32_t index = 0; index < count; ++index)
    reply += wanted[index] ? " yes" : " no";
  give(answer, reply);
  return CERMET_OK;
}

// As the compiler: of a graph that has one, with as many entries as there are inputs or none, and no more of an input
// than "wanted" says. The answer is that of "loss" or "gradient", with what these gradients need.
cermet_status linearLoss(const char* text, size_t length, const uint8_t* wanted, int32_t count,
                         const cermet_compiler_options*, cermet_buffer* answer, cermet_buffer* failure) {
  using Json = nlohmann::json;
  const Json graph = Json::parse(text, text + length, nullptr, false);
  const auto found = graph.find("linear_loss");
  if (found == graph.end()) {
    give(failure, "the text has no loss of a linear layer");
    return CERMET_UNSUPPORTED;
  }
  const std::vector<int> most = found->at("wanted");
  std::vector<int> asked(wanted, wanted + count);
  bool isRight = asked.empty() || asked.size() == most.size(), isDifferentiated = false;
  asked.resize(most.size());
  for (size_t input = 0; input < most.size(); ++input) {
    isRight &= asked[input] <= most[input];
    isDifferentiated |= asked[input] != 0;
  }
  if (!isRight) {
    give(failure, "`gradients` are not those that there are");
    return CERMET_INVALID_ARGUMENT;
  }
  const auto parts = found->find(isDifferentiated ? "gradient" : "loss");
  if (parts == found->end()) {
    give(failure, "the graph returns more than one number");
    return CERMET_UNSUPPORTED;
  }
  Json reply = *parts;
  if (asked[reply.at("weight").get<size_t>()] != 1)
    reply.erase("rounded_weight");
  if (asked[found->at("bias").get<size_t>()] == 0) {
    reply.erase("summed_gradient");
    reply.erase("summed_bias");
  }
  give(answer, reply.dump());
  return CERMET_OK;
}

struct Together {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0, left = 0; // builds that run, and those of a full group that may leave

  bool wait(int group) {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::seconds(10), [&] { return left == 0; }) || ++inside > group)
      return false;
    if (inside == group) {
      left = group;
      changed.notify_all();
    } else if (!changed.wait_for(lock, std::chrono::seconds(10), [&] { return left > 0; })) {
      return false;
    }
    --inside;
    if (--left == 0)
      changed.notify_all();
    return true;
  }
};

cermet_status buildKernel(const char* spec, size_t length, const cermet_compiler_options*, cermet_buffer* image,
                          int32_t* nvrtcVersion, cermet_buffer* failure) {
  const std::string question(spec, length);
  if (const char* path = std::getenv("FAKE_COMPILER_LOG")) {
    const int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    const std::string line = question + "\n";
    if (log >= 0 && write(log, line.data(), line.size()) < 0)
      std::perror("FAKE_COMPILER_LOG");
    close(log);
  }
  cermet_status status;
  if (fails(question, failure, &status))
    return status;
  static Together together;
  const char* group = std::getenv("FAKE_COMPILER_TOGETHER");
  if (group && !together.wait(std::atoi(group))) {
    give(failure, "not as many kernels as expected are built together");
    return CERMET_INTERNAL;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5)); // long enough for a second thread to come
  *nvrtcVersion = 13000;
  if (question.rfind("file ", 0) != 0) {
    give(image, question);
    return CERMET_OK;
  }
  std::ifstream file(question.substr(5), std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  give(image, bytes.str());
  return CERMET_OK;
}

cermet_status kernelSource(const char* spec, size_t length, cermet_buffer* answer, cermet_buffer*) {
  give(answer, "source of " + std::string(spec, length));
  return CERMET_OK;
}

cermet_status interpret(const char*, size_t, int32_t, const cermet_tensor*, int32_t, cermet_buffer* failure) {
  give(failure, "the fake compiler interprets nothing");
  return CERMET_UNSUPPORTED;
}

void release(cermet_buffer* buffer) {
  std::free(buffer->data);
  *buffer = {nullptr, 0};
}

const cermet_compiler_table table = {1,          FAKE_BUILD_ID, compile,      match,     differentiate,
                                     linearLoss, buildKernel,   kernelSource, interpret, release};

} // namespace

extern "C" const cermet_compiler_table* cermet_compiler_table_v1(void) {
  return &table;
}
