#include "tests/unit/patterns/matching/Forms.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "mlir/Parser/Parser.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>

using namespace mlir;

namespace cermet {

static OwningOpRef<ModuleOp> parse(const std::string& file, MLIRContext& context) {
  return parseSourceFile<ModuleOp>(FORMS "/" + file + ".mlir", &context);
}

std::vector<Form> forms() {
  std::vector<Form> found;
  MLIRContext context(MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(FORMS))
    if (entry.path().extension() == ".mlir")
      files.push_back(entry.path().stem());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    auto module = parse(file, context);
    if (!module)
      continue;
    for (auto function : module->getOps<func::FuncOp>()) {
      bool opaque = false;
      function.walk([&](ir::OpaqueOp) { opaque = true; });
      if (!opaque)
        found.push_back({file, function.getName().str()});
    }
  }
  return found;
}

OwningOpRef<ModuleOp> graphOf(const Form& form, MLIRContext& context) {
  auto module = parse(form.file, context);
  auto function = module ? module->lookupSymbol<func::FuncOp>(form.function) : func::FuncOp();
  if (!function)
    return nullptr;
  auto graph = ir::createGraph(context);
  graph->push_back(function.clone());
  return graph;
}

std::vector<ir::Array> randomInputs(func::FuncOp function, std::mt19937_64& random) {
  std::vector<ir::Array> arrays;
  std::map<std::string, int64_t> sizes;
  double magnitude = std::exp2(std::uniform_int_distribution<>(-6, 6)(random));
  for (Type type : function.getArgumentTypes()) {
    ir::Array array;
    size_t count = 1;
    for (const ir::Dimension& dimension : ir::dimensions(cast<RankedTensorType>(type))) {
      int64_t size = dimension.size;
      if (dimension.isSymbol())
        size = sizes.try_emplace(dimension.symbol.str(), std::uniform_int_distribution<>(1, 5)(random)).first->second;
      array.shape.push_back(size);
      count *= size;
    }
    std::normal_distribution<double> normal(0, magnitude);
    for (size_t i = 0; i < count; ++i)
      array.data.push_back(normal(random));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

unsigned seedOfRun() {
  const char* given = std::getenv("CERMET_SEED");
  return given ? std::strtoul(given, nullptr, 10) : std::random_device{}();
}

void expectSameBits(ModuleOp expected, ModuleOp actual, llvm::ArrayRef<ir::Array> inputs) {
  std::vector<ir::Array> first, second;
  std::string error;
  ASSERT_TRUE(ir::interpret(expected, inputs, true, first, error)) << error;
  ASSERT_TRUE(ir::interpret(actual, inputs, true, second, error)) << error;
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    ASSERT_EQ(first[i].shape, second[i].shape);
    for (size_t j = 0; j < first[i].data.size(); ++j)
      if (!std::isnan(first[i].data[j]) || !std::isnan(second[i].data[j])) {
        ASSERT_EQ(first[i].data[j], second[i].data[j]) << "result " << i << ", element " << j;
      }
  }
}

} // namespace cermet
