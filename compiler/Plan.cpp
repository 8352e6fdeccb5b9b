#include "compiler/Plan.h"
#include "compiler/Dump.h"
#include "compiler/EmitCuda.h"
#include "compiler/HostTarget.h"
#include "compiler/Lower.h"
#include "compiler/Outline.h"
#include "compiler/Schedule.h"
#include "compiler/Target.h"
#include "ir/Decompose.h"
#include "ir/Ops.h"
#include "ir/Text.h"
#include "patterns/Raise.h"
#include "llvm/ADT/DenseMap.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace cermet {
namespace {

using Json = nlohmann::ordered_json;
using llvm::SmallVector;
using mlir::Operation;
using mlir::Value;

std::optional<std::string> dtypeName(mlir::Type type) {
  type = mlir::getElementTypeOrSelf(type);
  if (type.isBF16())
    return "bf16";
  if (auto real = llvm::dyn_cast<mlir::FloatType>(type); real && (type.isF16() || type.isF32() || type.isF64()))
    return fmt::format("f{}", real.getWidth());
  if (auto integer = llvm::dyn_cast<mlir::IntegerType>(type); integer && integer.getWidth() <= 64)
    return fmt::format("{}{}", integer.isUnsigned() ? "u" : "i", integer.getWidth());
  return std::nullopt;
}

Json dimensionsOf(mlir::Type type) {
  Json result = Json::array();
  if (auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type))
    for (const ir::Dimension& dimension : ir::dimensions(tensor))
      result.push_back(dimension.isSymbol() ? Json(dimension.symbol.str()) : Json(dimension.size));
  return result;
}

Json attributeValue(mlir::Attribute attribute) {
  if (llvm::isa<mlir::UnitAttr>(attribute))
    return true;
  if (auto flag = llvm::dyn_cast<mlir::BoolAttr>(attribute))
    return flag.getValue();
  if (auto number = llvm::dyn_cast<mlir::FloatAttr>(attribute))
    return number.getValueAsDouble();
  if (auto integer = llvm::dyn_cast<mlir::IntegerAttr>(attribute))
    return integer.getInt();
  if (auto text = llvm::dyn_cast<mlir::StringAttr>(attribute))
    return text.str();
  std::string printed;
  llvm::raw_string_ostream(printed) << attribute;
  return printed;
}

// Operations that are cheaper to repeat in each kernel that reads them than to store.
bool isRepeated(Operation* op) {
  return llvm::isa<ir::ConstantOp, ir::BroadcastOp>(op);
}

class Planner {
public:
  Planner(mlir::func::FuncOp function, const std::string& target) : function(function), target(target) {}

  std::string run() {
    plan["format"] = "cermet.plan.1";
    plan["name"] = function.getName().str();
    plan["target"] = target;
    plan["values"] = Json::array();
    plan["steps"] = Json::array();
    if (std::string error = declareEnds(); !error.empty())
      return error;
    if (!wholeFunction())
      stepByStep();
    return error;
  }

  Json plan;
  std::string programs; // of all kernels, for the dump
  std::string reason;   // why the whole function is not one kernel, or ""

private:
  Operation* terminator() { return function.getBody().front().getTerminator(); }

  std::string addValue(std::string name, const char* kind, mlir::Type type, int& index) {
    std::optional<std::string> dtype = dtypeName(type);
    if (!dtype) {
      std::string printed;
      llvm::raw_string_ostream(printed) << type;
      return fmt::format(
          "{} has type {}; a plan's values are tensors and numbers of f32 bf16 f16 f64 i64 i32 i16 i8 u8 i1", name,
          printed);
    }
    index = static_cast<int>(plan["values"].size());
    plan["values"].push_back({{"name", name}, {"kind", kind}, {"dtype", *dtype}, {"dims", dimensionsOf(type)}});
    return "";
  }

  // Inputs and outputs. A result that an operation computes is stored where it is computed; an input that is returned,
  // or a value returned twice, is copied at the end.
  std::string declareEnds() {
    for (mlir::BlockArgument argument : function.getArguments()) {
      int index = 0;
      std::string name = ir::argumentName(function, argument.getArgNumber());
      if (std::string error = addValue(name, "input", argument.getType(), index); !error.empty())
        return error;
      indices[argument] = index;
    }
    for (mlir::OpOperand& result : terminator()->getOpOperands()) {
      int index = 0;
      Operation* op = result.get().getDefiningOp();
      std::string name = op && op->getNumResults() == 1 ? ir::nodeName(op->getLoc()).str() : "";
      if (name.empty())
        name = fmt::format("result{}", result.getOperandNumber());
      if (std::string error = addValue(name, "output", result.get().getType(), index); !error.empty())
        return error;
      outputs.push_back(index);
      if (op)
        indices.try_emplace(result.get(), index);
    }
    return "";
  }

  bool wholeFunction() {
    mlir::OwningOpRef<mlir::ModuleOp> copy(function->getParentOfType<mlir::ModuleOp>().clone());
    mlir::func::FuncOp whole = ir::graphFunction(*copy);
    ir::decomposeFused(whole);
    ir::simplify(whole);
    LoweredFunction lowered;
    reason = lowerToRowProgram(whole, lowered);
    if (!reason.empty())
      return false;
    SmallVector<int> arguments(function.getNumArguments());
    for (size_t i = 0; i < arguments.size(); ++i)
      arguments[i] = static_cast<int>(i);
    addKernel(lowered, arguments, outputs);
    return true;
  }

  void stepByStep() {
    for (Operation& op : function.getBody().front().without_terminator()) {
      bool needed = !isRepeated(&op) || llvm::any_of(op.getUsers(), [&](Operation* user) { return needsStored(user); });
      if (needed && error.empty())
        step(&op);
    }
    for (mlir::OpOperand& result : terminator()->getOpOperands()) {
      int from = indices.lookup(result.get()), to = outputs[result.getOperandNumber()];
      if (from != to && error.empty())
        copy(result.get(), from, to);
    }
  }

  // Whether a user reads its operands from memory; a kernel repeats what is cheap.
  bool needsStored(Operation* user) {
    if (isRepeated(user))
      return false;
    return user == terminator() || !lowerAlone(user, nullptr, nullptr).empty();
  }

  // The program of one operation with what it repeats; "" or why there is none.
  std::string lowerAlone(Operation* op, OutlinedStep* step, LoweredFunction* lowered) {
    if (llvm::isa<ir::MatmulOp, ir::OpaqueOp, ir::ReshapeOp>(op))
      return "it is no row program";
    if (auto known = misfits.find(op); known != misfits.end())
      return known->second;
    OutlinedStep outlined = outlineStep(op, isRepeated);
    LoweredFunction result;
    std::string why = lowerToRowProgram(ir::graphFunction(*outlined.module), result);
    if (!why.empty()) {
      misfits[op] = why;
    } else if (step) {
      *step = std::move(outlined);
      *lowered = std::move(result);
    }
    return why;
  }

  void step(Operation* op) {
    OutlinedStep outlined;
    LoweredFunction lowered;
    std::string why = lowerAlone(op, &outlined, &lowered);
    if (why.empty()) {
      SmallVector<int> results = stored(outlined.results);
      return addKernel(lowered, stored(outlined.operands), results);
    }
    Json attributes = Json::object();
    for (mlir::NamedAttribute attribute : op->getAttrDictionary())
      attributes[attribute.getName().str()] = attributeValue(attribute.getValue());
    Json external{{"kind", "external"}, {"op", op->getName().getStringRef().str()}, {"attributes", attributes}};
    SmallVector<int> results = stored(op->getResults());
    external["operands"] = llvm::to_vector_of<int>(stored(op->getOperands()));
    external["results"] = results;
    external["line"] = ir::textLine(op->getLoc());
    if (misfits.contains(op))
      external["reason"] = why;
    plan["steps"].push_back(std::move(external));
  }

  void copy(Value value, int from, int to) {
    OutlinedStep outlined = outlineCopy(value);
    LoweredFunction lowered;
    if (lowerToRowProgram(ir::graphFunction(*outlined.module), lowered).empty())
      return addKernel(lowered, from, to);
    plan["steps"].push_back({{"kind", "external"},
                             {"op", "cermet.copy"},
                             {"attributes", Json::object()},
                             {"operands", {from}},
                             {"results", {to}},
                             {"line", ir::textLine(terminator()->getLoc())}});
  }

  // Where values are, each in a buffer of its own unless it is an input or an output.
  SmallVector<int> stored(mlir::ValueRange values) {
    SmallVector<int> result;
    for (Value value : values) {
      auto [known, isNew] = indices.try_emplace(value, 0);
      if (isNew)
        if (std::string why = addValue(fmt::format("t{}", buffers++), "buffer", value.getType(), known->second);
            !why.empty())
          error = why;
      result.push_back(known->second);
    }
    return result;
  }

  void addKernel(const LoweredFunction& lowered, llvm::ArrayRef<int> inputs, llvm::ArrayRef<int> results) {
    const RowProgram& program = lowered.program;
    KernelSpec spec{target, "traced", program, chooseSchedule(program, target)};
    const Schedule& schedule = spec.schedule;
    std::string vector, scalar, fold;
    if (isHostTarget(target)) {
      HostEntries entries = hostEntries(spec);
      vector = scalar = entries.main;
      fold = entries.fold;
    } else {
      KernelEntries entries = kernelEntries(spec);
      vector = entries.vector;
      scalar = entries.scalar;
      fold = entries.fold;
    }
    Json operands = Json::array();
    int accumulators = 0;
    for (size_t i = 0; i < program.operands.size(); ++i) {
      const Operand& operand = program.operands[i];
      accumulators += operand.isOutput && operand.kind == OperandKind::Column;
      operands.push_back({{"value", (operand.isOutput ? results : inputs)[lowered.positions[i]]},
                          {"kind", name(operand.kind)},
                          {"dtype", name(operand.dtype)},
                          {"output", operand.isOutput}});
    }
    bool byRow = schedule.skeleton == Skeleton::Row;
    plan["steps"].push_back({{"kind", "kernel"},
                             {"name", program.name},
                             {"spec", print(spec)},
                             {"skeleton", name(schedule.skeleton)},
                             {"columns", program.columns},
                             {"threads", schedule.threads},
                             {"rows_per_block", byRow ? schedule.threads / schedule.threadsPerRow : 1},
                             {"vector", schedule.vector},
                             {"blocks_per_sm", schedule.blocksPerSm},
                             {"shared_bytes", schedule.sharedBytes},
                             {"accumulators", accumulators},
                             {"entries", {{"vector", vector}, {"scalar", scalar}, {"fold", fold}}},
                             {"operands", operands}});
    programs += print(program) + "\n";
  }

  mlir::func::FuncOp function;
  const std::string& target;
  std::string error;
  llvm::DenseMap<Value, int> indices; // into the plan's values
  SmallVector<int> outputs;
  llvm::DenseMap<Operation*, std::string> misfits; // why an operation is no kernel
  int buffers = 0;
};

} // namespace

cermet_status compileGraph(llvm::StringRef text, const std::string& target, const Dump& dump, std::string& json,
                           std::string& error) {
  if (error = checkTarget(target); !error.empty())
    return CERMET_UNSUPPORTED;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  mlir::OwningOpRef<mlir::ModuleOp> graph = ir::parseGraph(text, context, error);
  if (!graph)
    return CERMET_INVALID_GRAPH;
  mlir::func::FuncOp function = ir::graphFunction(*graph);
  std::string stem = dumpStem(function.getName().str(), target + "\n" + text.str());
  dump.write(stem, "graph.mlir", text);

  RaiseResult raised = raise(function);
  Json regions = Json::array(), nearMisses = Json::array();
  for (const Region& region : raised.regions)
    regions.push_back({{"pattern", region.pattern->name.str()}, {"results", region.results}});
  for (const NearMiss& miss : raised.nearMisses)
    nearMisses.push_back({{"pattern", miss.pattern}, {"at", miss.at}, {"condition", miss.condition}});
  ir::simplify(function);
  if (dump.enabled())
    dump.write(stem, "raised.mlir", ir::printGraph(*graph, true));
  Planner planner(function, target);
  if (error = planner.run(); !error.empty())
    return CERMET_UNSUPPORTED;
  planner.plan["regions"] = regions;
  planner.plan["near_misses"] = nearMisses;
  dump.write(stem, "program", planner.programs);
  json = planner.plan.dump(1);
  return CERMET_OK;
}

} // namespace cermet
