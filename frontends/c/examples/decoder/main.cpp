// Reads a Hugging Face checkpoint and goes on with a text, without Python and without torch:
//
//     decoder CHECKPOINT (--prompt TEXT | --ids 1,2,3) [--tokens N] [--temperature T] [--seed N]
//                        [--target host|auto|sm_90|...] [--dtype f32|bf16|f16] [--length N] [--pack FILE]
//     decoder CHECKPOINT --graphs DIRECTORY [--target ...] [--dtype ...] [--length ...]
//
// The first runs: at temperature 0, which is the default, by the likeliest token. The second only writes the texts of
// what Cermet will be asked for, of which `cermet compile` makes a pack on any machine; with that pack nothing is
// compiled here, and neither the compiler library nor NVRTC is opened. Without one, kernels are compiled once and kept
// (docs/c-api.md).
#include "Decoder.h"
#include "Words.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace {

struct Arguments {
  std::string checkpoint, target = "auto", dtype, pack, graphs, prompt;
  std::vector<int64_t> ids;
  int64_t tokens = 32, length = 0, seed = 0;
  float temperature = 0;
};

int64_t wholeNumber(const std::string& text, const std::string& what) {
  size_t used = 0;
  int64_t number = -1;
  try {
    number = std::stoll(text, &used);
  } catch (const std::logic_error&) {
  }
  if (used != text.size() || number < 0)
    throw std::runtime_error(what + " is '" + text + "', expected a whole number");
  return number;
}

Arguments parse(int count, char** given) {
  Arguments arguments;
  for (int index = 1; index < count; ++index) {
    const std::string name = given[index];
    if (name.rfind("--", 0) != 0) {
      arguments.checkpoint = name;
      continue;
    }
    if (index + 1 == count)
      throw std::runtime_error(name + " needs a value");
    const std::string value = given[++index];
    if (name == "--prompt")
      arguments.prompt = value;
    else if (name == "--ids")
      for (size_t begin = 0, end; begin <= value.size(); begin = end + 1) {
        end = std::min(value.find(',', begin), value.size());
        arguments.ids.push_back(wholeNumber(value.substr(begin, end - begin), name));
      }
    else if (name == "--tokens")
      arguments.tokens = wholeNumber(value, name);
    else if (name == "--length")
      arguments.length = wholeNumber(value, name);
    else if (name == "--seed")
      arguments.seed = wholeNumber(value, name);
    else if (name == "--temperature")
      arguments.temperature = std::stof(value);
    else if (name == "--target")
      arguments.target = value;
    else if (name == "--dtype")
      arguments.dtype = elementType(value).name;
    else if (name == "--pack")
      arguments.pack = value;
    else if (name == "--graphs")
      arguments.graphs = value;
    else
      throw std::runtime_error(name + " is no option; the first lines of main.cpp have them all");
  }
  if (arguments.checkpoint.empty())
    throw std::runtime_error("expected the directory of a checkpoint");
  return arguments;
}

// Products on the host are f32, whatever the checkpoint has.
Sizes sizesOf(const Arguments& arguments, const Checkpoint& checkpoint, bool onHost) {
  Sizes sizes{Config::read(arguments.checkpoint), arguments.dtype, arguments.length, false};
  if (sizes.dtype.empty())
    sizes.dtype = onHost ? "f32" : sizes.config.dtype;
  if (sizes.keys == 0)
    sizes.keys = std::min<int64_t>(4096, sizes.config.positions);
  sizes.normed = checkpoint.has("model.layers.0.self_attn.q_norm.weight");
  return sizes;
}

void writeGraphs(const Arguments& arguments) {
  const Checkpoint checkpoint(arguments.checkpoint);
  const Sizes sizes = sizesOf(arguments, checkpoint, arguments.target.rfind("host", 0) == 0);
  std::vector<Graph> graphs{embedGraph(sizes),   rotateGraph(sizes), attendGraph(sizes),
                            addNormGraph(sizes), gateGraph(sizes),   chooseGraph(sizes)};
  for (const std::string& from : otherTypes(checkpoint, sizes.dtype)) {
    graphs.push_back(convertGraph(from, sizes.dtype));
    graphs.back().name += "_" + from;
  }
  std::filesystem::create_directories(arguments.graphs);
  for (const Graph& graph : graphs) {
    std::ofstream file(arguments.graphs + "/" + graph.name + ".mlir");
    if (!(file << graph.text << std::flush))
      throw std::runtime_error(arguments.graphs + "/" + graph.name + ".mlir cannot be written");
  }
  std::printf("cermet compile %s/*.mlir -t %s -o decoder.cpack\n", arguments.graphs.c_str(), arguments.target.c_str());
}

void run(const Arguments& arguments) {
  const std::unique_ptr<Words> words = Words::open(arguments.checkpoint);
  std::vector<int64_t> ids = arguments.ids;
  if (!arguments.prompt.empty()) {
    if (!words)
      throw std::runtime_error("--prompt needs " + arguments.checkpoint +
                               "/tokenizer.model and a build with SentencePiece; give tokens with --ids");
    ids = words->tokens(arguments.prompt);
  }
  const std::unique_ptr<Device> device = Device::open(arguments.target);
  const Checkpoint checkpoint(arguments.checkpoint);
  const Sizes sizes = sizesOf(arguments, checkpoint, device->readsHostMemory());
  cermet::Options options;
  if (!arguments.pack.empty()) { // everything is there, or it is an error
    options.packs = arguments.pack.c_str();
    options.cache = "only";
    options.cache_directory = "";
  }
  const cermet::Context context(options);
  Decoder decoder(*device, context, checkpoint, sizes);

  std::printf("prompt:");
  for (int64_t id : ids)
    std::printf(" %lld", static_cast<long long>(id));
  std::printf("\ntokens:");
  std::vector<int64_t> made;
  double logarithm = 0;
  const auto start = std::chrono::steady_clock::now();
  while (static_cast<int64_t>(made.size()) < arguments.tokens &&
         (made.empty() || !sizes.config.ends.count(made.back()))) {
    const Decoder::Token token = decoder.next(ids, arguments.temperature, arguments.seed);
    ids = {token.id};
    made.push_back(token.id);
    logarithm += std::log(token.probability);
    std::printf(" %lld", static_cast<long long>(token.id));
    std::fflush(stdout);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (words)
    std::printf("\ntext: %s", words->text(made).c_str());
  const cermet_counters counters = context.counters();
  std::printf(
      "\n%zu tokens in %.3f s, %.4f nats each; %s of %s; kernels: %llu from packs, %llu compiled; launches: %llu\n",
      made.size(), took.count(), -logarithm / static_cast<double>(made.size()), sizes.dtype.c_str(),
      device->target().c_str(), static_cast<unsigned long long>(counters.kernels_from_packs),
      static_cast<unsigned long long>(counters.kernels_compiled), static_cast<unsigned long long>(counters.launches));
}

} // namespace

int main(int count, char** given) try {
  const Arguments arguments = parse(count, given);
  if (arguments.graphs.empty())
    run(arguments);
  else
    writeGraphs(arguments);
  if (std::fflush(stdout) != 0)
    throw std::runtime_error("standard output cannot be written");
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "decoder: %s\n", failure.what());
  return 1;
}
