// Prints what is generated for a graph and for its gradient: each kernel's spec, and the CUDA C++ after prelude and
// skeleton. For golden files.
//
//     cermet-print-programs graph.mlir sm_90 [numbers of the inputs whose gradients are wanted; all floats without]
#include "compiler/program/Dump.h"
#include "compiler/cuda/Emit.h"
#include "compiler/plan/Plan.h"
#include "ir/gradient/Gradient.h"
#include "ir/text/Text.h"
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

using namespace cermet;

static bool print(const char* title, const std::string& text, const std::string& target) {
  std::string answer, error;
  if (compileGraph(text, target, Dump(), answer, error) != CERMET_OK) {
    fmt::print(stderr, "{}: {}\n", title, error);
    return false;
  }
  const nlohmann::json plan = nlohmann::json::parse(answer);
  for (const auto& step : plan["steps"]) {
    if (step["kind"] != "kernel")
      continue;
    KernelSpec spec;
    if (error = parse(step["spec"], spec); !error.empty()) {
      fmt::print(stderr, "{}: {}\n", title, error);
      return false;
    }
    fmt::print("//===--- {} ---===//\n/*\n{}*/\n{}\n", title, step["spec"].get<std::string>(), emitProgram(spec));
  }
  return true;
}

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: {} graph.mlir target [input...]\n", arguments[0]);
    return 2;
  }
  std::ifstream file(arguments[1]);
  std::string text((std::istreambuf_iterator<char>(file)), {}), error;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  auto graph = ir::parseGraph(text, context, error);
  if (!graph) {
    fmt::print(stderr, "{}\n", error);
    return 1;
  }
  llvm::SmallVector<bool> wanted;
  for (mlir::Type type : ir::graphFunction(*graph).getArgumentTypes())
    wanted.push_back(count == 3 && llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type)));
  for (int i = 3; i < count; ++i)
    wanted[std::stoul(arguments[i])] = true;
  ir::Gradient gradient;
  if (!ir::differentiate(*graph, wanted, gradient, error)) {
    fmt::print(stderr, "{}\n", error);
    return 1;
  }
  std::string target = arguments[2];
  bool printed = print("graph", text, target) && print("forward", ir::printGraph(*gradient.forward, false), target) &&
                 print("backward", ir::printGraph(*gradient.backward, false), target);
  return printed ? 0 : 1;
}
