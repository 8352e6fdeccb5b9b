#include "tests/fuzz/Check.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Shape.h"
#include "ir/text/Text.h"
#include "runtime/launch/Executable.h"
#include "runtime/device/Target.h"
#include "tests/fuzz/Oracle.h"
#include "tests/fuzz/Tensor.h"
#include "tests/simt/Plans.h"
#include "tests/unit/compiler/GraphTexts.h"
#include <cstdlib>
#include <filesystem>
#include <fmt/ranges.h>
#include <mlir/IR/MLIRContext.h>
#include <mlir/IR/TypeUtilities.h>
#include <nlohmann/json.hpp>
#include <random>

namespace cermet::fuzz {
namespace {

using Arrays = std::vector<ir::Array>;

// The value, or the failure thrown.
template <typename T> T valueOf(Result<T> result, const char* kind) {
  if (!result.ok())
    throw Failure{kind, result.status().message()};
  return std::move(*result);
}

Config configuration() {
  Config config = valueOf(Config::environment(), "compile");
  config.cacheDirectory.clear();
  config.nvrtcLibrary = nvrtcLibrary();
  if (config.compilerLibrary.empty())
    config.compilerLibrary = COMPILER_LIBRARY;
  config.threads = config.compileThreads = 1;
  return config;
}

bool hasExternal(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const PlanStep& step) { return step.kind == StepKind::External; });
}

// Why a step of the plan is other code's, where that is none of the documented reasons; "" if there is no such step.
std::string unexpectedExternal(const Plan& plan) {
  if (!hasExternal(plan))
    return "";
  const auto json = nlohmann::json::parse(plan.json);
  for (const auto& step : json["steps"])
    // A gather's gradient is a product.
    if (step["kind"] == "external" && step["op"] != "cermet.matmul") {
      const std::string reason = step.value("reason", "it has no reason");
      if (reason.find("is symbolic; a kernel") == std::string::npos)
        return fmt::format("{} is an external step: {}", step["op"].get<std::string>(), reason);
    }
  return "";
}

class Checker {
public:
  Checker(const Case& given, int& compared)
      : given(given), compared(compared), context(std::make_shared<Context>(configuration())) {
    ir::registerDialects(mlirContext);
  }

  void run() {
    auto graph = parse(given.text);
    std::vector<Arrays> runs;
    for (size_t run = 0; run < given.sizes.size(); ++run) {
      randoms.emplace_back(given.seed + run);
      runs.push_back(inputs(*graph, run));
    }
    checkGraph(given.text, *graph, runs);
    if (given.gradient)
      checkGradient(*graph, runs);
  }

private:
  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string& text) {
    std::string error;
    auto graph = ir::parseGraph(text, mlirContext, error);
    if (!graph)
      throw Failure{"compile", error + text};
    return graph;
  }

  //===--- Inputs -------------------------------------------------------------------------------------------------===//

  ir::Array array(mlir::Type type, const Sizes& sizes) {
    ir::Array result;
    int64_t elements = 1;
    for (const ir::Dimension& dimension : ir::dimensions(llvm::cast<mlir::RankedTensorType>(type))) {
      auto known = dimension.isSymbol() ? sizes.find(dimension.symbol.str()) : sizes.end();
      result.shape.push_back(!dimension.isSymbol() ? dimension.size : known == sizes.end() ? 3 : known->second);
      elements *= result.shape.back();
    }
    result.data.resize(elements);
    return result;
  }

  ir::Array randomArray(mlir::Type type, size_t run, bool isWhole) {
    ir::Array result = array(type, given.sizes[run]);
    std::mt19937_64& random = randoms[run];
    mlir::Type element = llvm::cast<mlir::RankedTensorType>(type).getElementType();
    std::normal_distribution<double> normal;
    auto whole = [&](int largest) { return double(random() % (2 * largest + 1)) - largest; };
    for (double& number : result.data) {
      if (element.isInteger(1))
        number = random() % 2;
      else if (!llvm::isa<mlir::FloatType>(element))
        number = whole(kLargestInteger) + (element.isUnsignedInteger() ? kLargestInteger : 0);
      else
        number = isWhole ? whole(kLargestWhole) : std::clamp(normal(random), -kLargestInput, kLargestInput);
      number = ir::roundTo(element, number);
    }
    return result;
  }

  Arrays inputs(mlir::ModuleOp graph, size_t run) {
    mlir::func::FuncOp function = ir::graphFunction(graph);
    Arrays result;
    for (auto [index, type] : llvm::enumerate(function.getArgumentTypes())) {
      const std::string name = ir::argumentName(function, index);
      result.push_back(randomArray(type, run, isWholeInput(name)));
      if (isLabelInput(name))
        for (double& number : result.back().data)
          number = std::abs(number);
    }
    return result;
  }

  //===--- One graph ----------------------------------------------------------------------------------------------===//

  std::vector<Tensor> tensors(const Plan& plan, mlir::ModuleOp graph, const Arrays& numbers, const Arrays& results,
                              std::mt19937_64& random, bool isDense, bool guard) {
    mlir::func::FuncOp function = ir::graphFunction(graph);
    std::vector<Tensor> list;
    for (int i = 0; i < plan.inputs + plan.outputs; ++i) {
      bool isInput = i < plan.inputs;
      const ir::Array& of = isInput ? numbers[i] : results[i - plan.inputs];
      bool isStrided = isInput && function.getArgAttr(i, "cermet.strides");
      Layout layout = randomLayout(random, isStrided);
      if (isDense)
        layout = {0, 0, isStrided ? layout.step : 1};
      Tensor& tensor = list.emplace_back(plan.values[i].dtype, of.shape, layout, guard);
      if (isInput)
        tensor.write(of);
      tensor.seal();
    }
    return list;
  }

  static std::vector<cermet_tensor> views(const std::vector<Tensor>& tensors) {
    std::vector<cermet_tensor> list;
    for (const Tensor& tensor : tensors)
      list.push_back(tensor.view());
    return list;
  }

  void compare(const char* where, Oracle& oracle, const Plan& plan, const std::vector<Tensor>& tensors,
               const std::string& text) {
    Arrays outputs;
    for (int i = 0; i < plan.inputs + plan.outputs; ++i) {
      if (std::string damage = tensors[i].damage(i >= plan.inputs); !damage.empty())
        throw Failure{"memory", fmt::format("{}: {}: {}\n{}", where, plan.values[i].name, damage, text)};
      if (i >= plan.inputs)
        outputs.push_back(tensors[i].read());
    }
    if (std::string wrong = oracle.compare(outputs); !wrong.empty())
      throw Failure{"numbers", fmt::format("{}: {}, {}\n{}", where, plan.name, wrong, text)};
  }

  void runHost(const Executable& executable, const Plan& plan, mlir::ModuleOp graph, Oracle& oracle,
               const Arrays& numbers, std::mt19937_64& random, const std::string& text) {
    Status status;
    for (bool isDense : {false, true}) {
      std::vector<Tensor> list = tensors(plan, graph, numbers, oracle.traced(), random, isDense, true);
      const auto arguments = views(list);
      size_t bytes = 0;
      status = executable.workspaceSize(arguments.data(), int32_t(arguments.size()), &bytes);
      if (!status.ok())
        break;
      std::unique_ptr<char, void (*)(void*)> area(
          static_cast<char*>(std::aligned_alloc(kWorkspaceAlignment, bytes + kWorkspaceAlignment)), std::free);
      std::fill_n(area.get(), bytes + kWorkspaceAlignment, char(0xff));
      status = executable.launch(nullptr, arguments.data(), int32_t(arguments.size()), area.get(), bytes);
      if (status.ok())
        return compare("host", oracle, plan, list, text);
      // Some views of rows that lie apart are refused, by name; of dense ones none is.
    }
    throw Failure{"launch", fmt::format("{}\n{}", status.message(), text)};
  }

  void runSimt(const simt::PlanKernels& kernels, const Plan& plan, mlir::ModuleOp graph, Oracle& oracle,
               const Arrays& numbers, std::mt19937_64& random, const std::string& text) {
    std::vector<Tensor> list = tensors(plan, graph, numbers, oracle.traced(), random, false, false);
    simt::PlanOptions options;
    options.seed = random();
    std::string problem = simt::run(plan, kernels, views(list), options);
    if (problem == simt::kNeedsDense) {
      list = tensors(plan, graph, numbers, oracle.traced(), random, true, false);
      problem = simt::run(plan, kernels, views(list), options);
    }
    if (!problem.empty())
      throw Failure{"simt", problem + "\n" + text};
    compare("simt", oracle, plan, list, text);
  }

  std::shared_ptr<const Plan> compile(const std::string& text, const std::string& target) {
    std::string planted = text;
    if (const auto& [from, to] = given.plant; !from.empty())
      for (size_t at = planted.find(from); at != std::string::npos; at = planted.find(from, at + to.size()))
        planted.replace(at, from.size(), to);
    auto plan = context->compile(planted, target);
    if (!plan.ok())
      throw Failure{"compile", plan.status().message() + "\n" + text};
    if (std::string external = unexpectedExternal(**plan); !external.empty())
      throw Failure{"compile", external + "\n" + text};
    return *plan;
  }

  void checkGraph(const std::string& text, mlir::ModuleOp graph, const std::vector<Arrays>& runs) {
    std::shared_ptr<const Plan> hostPlan, cudaPlan;
    std::shared_ptr<Executable> executable;
    std::unique_ptr<simt::PlanKernels> kernels;
    if (given.host) {
      hostPlan = compile(text, valueOf(hostTarget(), "compile"));
      if (!hasExternal(*hostPlan))
        executable = valueOf(Executable::prepare(context, hostPlan, 0), "compile");
    }
    if (given.simt) {
      cudaPlan = compile(text, "sm_90");
      if (!hasExternal(*cudaPlan))
        kernels = std::make_unique<simt::PlanKernels>(*cudaPlan);
    }
    for (size_t run = 0; run < runs.size(); ++run) {
      const Arrays& numbers = runs[run];
      if (!executable && !kernels)
        break;
      Oracle oracle(graph, numbers);
      if (!oracle.error().empty())
        throw Failure{"compile", "the interpreter: " + oracle.error() + text};
      if (!oracle.isFinite())
        continue;
      ++compared;
      if (executable)
        runHost(*executable, *hostPlan, graph, oracle, numbers, randoms[run], text);
      if (kernels)
        runSimt(*kernels, *cudaPlan, graph, oracle, numbers, randoms[run], text);
    }
    for (const std::string& target : given.targets) {
      const auto plan = compile(text, target);
      std::vector<std::string> specs;
      for (const PlanStep& step : plan->steps)
        if (step.kind == StepKind::Kernel)
          specs.push_back(step.spec);
      valueOf(context->kernelImages(specs), "nvrtc");
    }
  }

  //===--- Its gradient -------------------------------------------------------------------------------------------===//

  void checkGradient(mlir::ModuleOp graph, const std::vector<Arrays>& runs) {
    mlir::func::FuncOp function = ir::graphFunction(graph);
    std::vector<uint8_t> wanted;
    for (mlir::BlockArgument input : function.getArguments())
      wanted.push_back(tests::isWantedInput(tests::wantedInputs(given.text),
                                            ir::argumentName(function, input.getArgNumber()),
                                            llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(input.getType()))));
    const auto answer = nlohmann::json::parse(valueOf(context->differentiate(given.text, wanted), "gradient"));
    const std::string forward = answer["forward"], backward = answer["backward"];
    auto forwardGraph = parse(forward), backwardGraph = parse(backward);
    mlir::func::FuncOp backwardFunction = ir::graphFunction(*backwardGraph);
    std::vector<Arrays> backwardRuns;
    for (size_t run = 0; run < runs.size(); ++run) {
      Oracle oracle(*forwardGraph, runs[run]);
      if (!oracle.error().empty())
        throw Failure{"gradient", oracle.error() + forward};
      Arrays& numbers = backwardRuns.emplace_back();
      for (auto [index, origin] : llvm::enumerate(answer["backward_inputs"])) {
        const std::string from = origin["from"];
        size_t at = origin["index"];
        if (from == "input")
          numbers.push_back(runs[run][at]);
        else if (from != "cotangent")
          numbers.push_back(oracle.traced()[from == "output" ? at : at + answer["outputs"].get<size_t>()]);
        else
          numbers.push_back(randomArray(backwardFunction.getArgumentTypes()[index], run, false));
      }
    }
    if (forward != given.text && answer["saved"] != 0)
      checkGraph(forward, *forwardGraph, runs);
    checkGraph(backward, *backwardGraph, backwardRuns);
  }

  const Case& given;
  int& compared;
  std::vector<std::mt19937_64> randoms; // of each run
  std::shared_ptr<Context> context;
  mlir::MLIRContext mlirContext{mlir::MLIRContext::Threading::DISABLED};
};

} // namespace

bool Failure::isLike(const Failure& other) const {
  if (kind != other.kind)
    return false;
  if (kind == "numbers" || kind == "memory")
    return message.substr(0, 4) == other.message.substr(0, 4); // host or simt
  // The first words of the message, without names and numbers.
  auto words = [](const std::string& text) {
    std::string result;
    for (char c : text.substr(0, 60)) {
      if (c == '\'' || c == '"' || c == '\n')
        break;
      if (!(c >= '0' && c <= '9'))
        result += c;
    }
    return result;
  };
  return words(message) == words(other.message);
}

Failure check(const Case& given, int& compared) {
  try {
    Checker(given, compared).run();
  } catch (const Failure& failure) {
    return failure;
  } catch (const std::exception& failure) {
    return {"crash", failure.what()};
  }
  return {};
}

std::string nvrtcLibrary() {
  if (const char* given = std::getenv("CERMET_NVRTC"); given && *given)
    return given;
  std::error_code ignored;
  for (const auto& python : std::filesystem::directory_iterator(SOURCE_DIR "/.venv/lib", ignored)) {
    std::filesystem::path library = python.path() / "site-packages/nvidia/cu13/lib/libnvrtc.so.13";
    if (std::filesystem::exists(library, ignored))
      return library;
  }
  return "";
}

} // namespace cermet::fuzz
