#include "compiler/plan/Plan.h"
#include "compiler/plan/Grouping.h"
#include "compiler/program/Dump.h"
#include "compiler/plan/Lower.h"
#include "compiler/plan/NormalForm.h"
#include "compiler/plan/Placement.h"
#include "compiler/plan/Steps.h"
#include "compiler/plan/Values.h"
#include "compiler/program/Schedule.h"
#include "compiler/plan/StoredValues.h"
#include "compiler/program/Target.h"
#include "ir/transforms/Decompose.h"
#include "ir/dialect/Ops.h"
#include "ir/transforms/Reshapes.h"
#include "ir/text/Text.h"
#include "ir/dialect/Shape.h"
#include "patterns/Registry.h"
#include "patterns/matching/Raise.h"
#include "runtime/abi/Limits.h"
#include "llvm/ADT/DenseMap.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cermet {
namespace {

using Json = nlohmann::ordered_json;
using llvm::SmallVector;
using mlir::Operation;
using mlir::Value;

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

// The operations of a kernel that computes the whole function, by the same count as a group's.
size_t operationsIn(mlir::func::FuncOp function) {
  return llvm::count_if(function.getBody().front().without_terminator(),
                        [](Operation& op) { return !isRepeated(&op); });
}

// Of one tensor: how many are asked whether they store it, too.
constexpr size_t kMaxReaders = 4;

class Planner {
public:
  Planner(mlir::func::FuncOp function, const std::string& target) : function(function), target(target) {}

  std::string run() {
    plan = {{"format", "cermet.plan.1"}, {"name", function.getName().str()}, {"target", target}};
    declareEnds();
    if (values.error().empty() && !wholeFunction())
      stepByStep();
    steps.joinKernels([&](int value) { return values.rootOf(value); });
    programs = steps.programs();
    std::string error = values.error(); // while they are all there
    Json list = steps.take(target);
    plan["values"] = values.take(list);
    tellPlacement(plan["values"], list);
    plan["steps"] = std::move(list);
    return error;
  }

  Json plan;
  std::string programs; // of all kernels, for the dump

private:
  Operation* terminator() { return function.getBody().front().getTerminator(); }

  // A result that an operation computes is stored where it is computed; an input or a view that is returned, or a value
  // returned twice, is copied at the end.
  void declareEnds() {
    for (mlir::BlockArgument argument : function.getArguments())
      places[argument] =
          values.add(PlanValues::Input, ir::argumentName(function, argument.getArgNumber()), argument.getType());
    for (mlir::OpOperand& result : terminator()->getOpOperands()) {
      Operation* op = result.get().getDefiningOp();
      std::string name = op && op->getNumResults() == 1 ? ir::nodeName(op->getLoc()).str() : "";
      if (name.empty())
        name = fmt::format("result{}", result.getOperandNumber());
      outputs.push_back(values.add(PlanValues::Output, name, result.get().getType()));
      if (op && !isView(op))
        places.try_emplace(result.get(), outputs.back());
    }
    for (mlir::OpOperand& result : terminator()->getOpOperands())
      if (!declareTransposed(result))
        declareReshaped(result);
  }

  // What is computed in another order of rows is stored where it is returned.
  bool declareTransposed(mlir::OpOperand& result) {
    auto transpose = result.get().getDefiningOp<ir::TransposeOp>();
    Value computed = transpose ? transpose.getOperand() : Value();
    Operation* op = computed ? computed.getDefiningOp() : nullptr;
    if (!op || isView(op) || isRepeated(op) || places.contains(computed) || places.contains(result.get()))
      return false;
    llvm::ArrayRef<int64_t> permutation = transpose.getPermutation();
    if (permutation.back() + 1 != int64_t(permutation.size()))
      return false;
    const int output = outputs[result.getOperandNumber()];
    places[result.get()] = output;
    const auto back = ir::inverse(permutation);
    const std::vector<int64_t> numbers(back.begin(), back.end());
    places[computed] = values.addView(output, computed.getType(), {{"view", "transpose"}, {"permutation", numbers}});
    return true;
  }

  // What is computed in other rows, or in columns that the result splits or has from several dimensions, or is a number
  // that sums over rows left in another shape, or numbers of rows, is stored where it is returned.
  void declareReshaped(mlir::OpOperand& result) {
    auto reshape = result.get().getDefiningOp<ir::ReshapeOp>();
    Value computed = reshape ? reshape.getOperand() : Value();
    Operation* op = computed ? computed.getDefiningOp() : nullptr;
    if (!op || isView(op) || isRepeated(op) || places.contains(computed) || places.contains(result.get()))
      return;
    const auto shape = llvm::cast<mlir::RankedTensorType>(result.get().getType()).getShape();
    const auto from = llvm::cast<mlir::RankedTensorType>(computed.getType()).getShape();
    const bool isNumber = llvm::all_of(shape, [](int64_t size) { return size == 1; });
    const bool isOfRows = !from.empty() && from.back() == 1; // a number each, one behind the other
    if (!isNumber && !ir::endAlike(shape, from) && !isOfRows)
      return;
    const int output = outputs[result.getOperandNumber()];
    places[result.get()] = output;
    places[computed] = values.addReshape(output, computed.getType());
  }

  bool wholeFunction() {
    if (function.getBody().front().getOperations().size() > kMaxOperations)
      return false;
    llvm::SmallBitVector strided(function.getNumArguments());
    SmallVector<Value> arguments(function.getArguments());
    for (auto [index, argument] : llvm::enumerate(arguments))
      if (!hasUnitStride(argument))
        strided.set(index);
    LoweredFunction lowered;
    if (!lowerToRowProgram(function, strided, lowered).empty())
      return false;
    addKernel(lowered, operationsIn(function), stored(arguments), outputs);
    return true;
  }

  void stepByStep() {
    std::vector<Group> groups = groupOperations(function);
    auto concats = llvm::to_vector(function.getBody().front().getOps<ir::ConcatOp>());
    llvm::DenseSet<Value> computed;
    for (const Group& group : groups)
      if (group.isKernel)
        computed.insert(group.body.results.begin(), group.body.results.end());
    for (ir::ConcatOp concat : llvm::reverse(concats))
      placeParts(concat, computed);
    storeWhatIsRead(groups);
    for (Group& group : groups)
      step(group);
    for (mlir::OpOperand& result : terminator()->getOpOperands())
      if (int to = outputs[result.getOperandNumber()];
          places.lookup(result.get()) != to || !places.contains(result.get()))
        copy(result.get(), to);
  }

  // A kernel stores what only a concat needs where the concat has it.
  void placeParts(ir::ConcatOp concat, const llvm::DenseSet<Value>& computed) {
    int whole = place(concat.getResult());
    int64_t dim = static_cast<int64_t>(concat.getDim());
    SmallVector<int64_t> starts(llvm::cast<mlir::RankedTensorType>(concat.getType()).getRank(), 0);
    for (Value part : concat.getOperands()) {
      auto type = llvm::cast<mlir::RankedTensorType>(part.getType());
      parts[concat].push_back(values.addSlice(whole, type, starts));
      starts[dim] += type.getShape()[dim];
      Operation* op = part.getDefiningOp();
      const bool isComputed = llvm::isa_and_nonnull<ir::ConcatOp>(op) || computed.contains(part);
      // A view of it expects it whole.
      if (isComputed && llvm::none_of(part.getUsers(), isView))
        places.try_emplace(part, parts[concat].back());
    }
  }

  // A kernel that reads what a concat joins, and that no kernel stores there, stores it, too, if it runs before.
  void storeWhatIsRead(llvm::MutableArrayRef<Group> groups) {
    llvm::DenseMap<Value, SmallVector<Group*, kMaxReaders>> readers; // so far
    for (Group& group : groups) {
      if (group.isKernel)
        for (Value operand : group.body.operands)
          if (auto& those = readers[operand]; those.size() < kMaxReaders)
            those.push_back(&group);
      auto concat = llvm::dyn_cast<ir::ConcatOp>(group.ops.front());
      if (!concat)
        continue;
      for (auto [part, to] : llvm::zip_equal(concat.getOperands(), parts[concat])) {
        if (isAt(part, to))
          continue;
        const auto those = readers.lookup(part);
        const auto reader = llvm::find_if(those, [&](Group* each) { return each->storeToo(part); });
        if (reader == those.end())
          continue;
        stores[*reader].push_back(to);
        filled.insert(to);
      }
    }
  }

  bool isAt(Value value, int place) const { return places.contains(value) && places.lookup(value) == place; }

  void step(Group& group) {
    if (group.isKernel) {
      const SmallVector<int> more = stores.lookup(&group);
      SmallVector<int> results = stored(mlir::ValueRange(group.body.results).drop_back(more.size()));
      results.append(more);
      return addKernel(group.lowered, group.ops.size(), stored(group.body.operands), results);
    }
    Operation* op = group.ops.front();
    if (auto concat = llvm::dyn_cast<ir::ConcatOp>(op)) {
      for (auto [part, to] : llvm::zip_equal(concat.getOperands(), parts[concat]))
        if (!isAt(part, to) && !filled.contains(to))
          copy(part, to);
      return;
    }
    Json attributes = Json::object();
    for (mlir::NamedAttribute attribute : op->getAttrDictionary())
      attributes[attribute.getName().str()] = attributeValue(attribute.getValue());
    SmallVector<int> operands = stored(op->getOperands()), results = stored(op->getResults());
    Json external{{"kind", "external"},       {"op", op->getName().getStringRef().str()},
                  {"attributes", attributes}, {"operands", operands},
                  {"results", results},       {"line", ir::textLine(op->getLoc())}};
    if (!group.reason.empty())
      external["reason"] = group.reason;
    steps.addExternal(std::move(external));
  }

  void copy(Value value, int to) {
    StepFunction outlined = stepFunction({}, arrangeStep({}, value, isRepeated));
    llvm::SmallBitVector strided(outlined.operands.size());
    for (auto [index, operand] : llvm::enumerate(outlined.operands))
      if (!hasUnitStride(operand))
        strided.set(index);
    LoweredFunction lowered;
    if (lowerToRowProgram(ir::graphFunction(*outlined.module), strided, lowered).empty())
      return addKernel(lowered, 0, stored(outlined.operands), to);
    steps.addExternal({{"kind", "external"},
                       {"op", "cermet.copy"},
                       {"attributes", Json::object()},
                       {"operands", {place(value)}},
                       {"results", {to}},
                       {"line", ir::textLine(terminator()->getLoc())}});
  }

  SmallVector<int> stored(mlir::ValueRange list) {
    SmallVector<int> result;
    for (Value value : list)
      result.push_back(place(value));
    return result;
  }

  // Where a value is: each in a buffer of its own unless it is an input, an output, or a view of another.
  int place(Value value) {
    // From what a chain of views is of to its end.
    SmallVector<Operation*> views;
    for (Operation* op = value.getDefiningOp(); op && isView(op) && !places.contains(op->getResult(0));
         op = op->getOperand(0).getDefiningOp())
      views.push_back(op);
    for (Operation* view : llvm::reverse(llvm::drop_begin(views, views.empty() ? 0 : 1)))
      (void)placeOne(view->getResult(0));
    return placeOne(value);
  }

  int placeOne(Value value) {
    if (auto known = places.find(value); known != places.end())
      return known->second;
    Operation* op = value.getDefiningOp();
    int index = op && isView(op) ? placeView(op) : values.addBuffer(value.getType());
    places[value] = index;
    return index;
  }

  int placeView(Operation* op) {
    mlir::Type type = op->getResult(0).getType();
    Value source = op->getOperand(0);
    if (auto slice = llvm::dyn_cast<ir::SliceOp>(op))
      return values.addSlice(place(source), type, slice.getStarts());
    if (auto transpose = llvm::dyn_cast<ir::TransposeOp>(op))
      return values.addView(place(source), type,
                            {{"view", "transpose"}, {"permutation", transpose.getPermutation().vec()}});
    if (isReshapeView(op))
      return values.addReshape(place(source), type);
    if (!denseCopies.contains(source)) {
      denseCopies[source] = values.addBuffer(source.getType());
      copy(source, denseCopies[source]);
    }
    return values.addReshape(denseCopies[source], type);
  }

  // The value as the kernel's rows and columns.
  int columnsOf(int value, int operand, const LoweredFunction& lowered) {
    const auto& operands = lowered.program.operands;
    const bool isNumbers = operands[operand].kind == OperandKind::Row && llvm::any_of(operands, [&](const Operand& it) {
                             return it.rowsFrom == operand || it.from == operand || it.to == operand;
                           });
    const bool appends = lowered.appendsColumn && operands[operand].kind == OperandKind::Tile;
    return appends || isNumbers ? values.withColumn(value) : value;
  }

  // The row extents that an index counts along.
  static std::vector<int> extentsOf(int bits) {
    std::vector<int> extents;
    for (int extent = 0; bits >> extent; ++extent)
      if (bits >> extent & 1)
        extents.push_back(extent);
    return extents;
  }

  // Whether columns are picked while others of the same row may be stored: no reduction lies between.
  static bool picksUnordered(const RowProgram& program) {
    return program.stages() == 1 && llvm::any_of(program.instructions, [](const Instruction& instruction) {
             return instruction.opcode == Opcode::Pick;
           });
  }

  void addKernel(const LoweredFunction& lowered, size_t operations, llvm::ArrayRef<int> inputs,
                 llvm::ArrayRef<int> results) {
    const RowProgram& program = lowered.program;
    Json operands = Json::array();
    for (size_t i = 0; i < program.operands.size(); ++i) {
      const Operand& operand = program.operands[i];
      Json& json = operands.emplace_back(Json::object());
      if (operand.kind == OperandKind::Index)
        json["dims"] = extentsOf(lowered.positions[i]);
      else
        json["value"] =
            columnsOf((operand.isOutput ? results : inputs)[lowered.positions[i]], static_cast<int>(i), lowered);
      json["kind"] = name(operand.kind);
      json["dtype"] = name(operand.dtype);
      json["output"] = operand.isOutput;
      if (operand.isStrided)
        json["strided"] = true;
      if (operand.rowsFrom >= 0)
        json["rows"] = operand.rowsFrom;
      if (operand.from >= 0) {
        json["from"] = operand.from;
        json["to"] = operand.to;
      }
      if (operand.sums >= 0)
        json["sums"] = operand.sums;
      if (operand.map.isMapped())
        json["columns"] = operand.map.width;
      if (operand.kind == OperandKind::Tile && !operand.isOutput && picksUnordered(program))
        json["picked"] = true;
    }
    steps.addKernel({program, chooseSchedule(program, target)}, operations, std::move(operands));
  }

  mlir::func::FuncOp function;
  const std::string& target;
  PlanSteps steps;
  PlanValues values;
  SmallVector<int> outputs;                           // by position
  llvm::DenseMap<Value, int> places;                  // values of the plan
  llvm::DenseMap<Operation*, SmallVector<int>> parts; // of a concat, by operand
  llvm::DenseMap<Group*, SmallVector<int>> stores;    // where a kernel stores what it reads, its last results
  llvm::DenseSet<int> filled;                         // the parts of concats among these
  llvm::DenseMap<Value, int> denseCopies;             // of values that a reshape cannot be a view of
};

} // namespace

cermet_status readGraph(llvm::StringRef text, mlir::MLIRContext& context, mlir::OwningOpRef<mlir::ModuleOp>& graph,
                        std::string& error) {
  ir::registerDialects(context);
  graph = ir::parseGraph(text, context, error);
  if (!graph)
    return CERMET_INVALID_GRAPH;
  mlir::func::FuncOp function = ir::graphFunction(*graph);
  const size_t count = function.getBody().front().getOperations().size() - 1; // without the return
  if (count <= size_t(kMaxGraphOperations))
    return CERMET_OK;
  error =
      fmt::format("@{} has {} operations, expected at most {}", function.getName().str(), count, kMaxGraphOperations);
  return CERMET_UNSUPPORTED;
}

cermet_status compileGraph(llvm::StringRef text, const std::string& target, const Dump& dump, std::string& json,
                           std::string& error) {
  if (error = checkTarget(target); !error.empty())
    return CERMET_UNSUPPORTED;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> graph;
  if (const cermet_status status = readGraph(text, context, graph, error))
    return status;
  mlir::func::FuncOp function = ir::graphFunction(*graph);
  std::string stem = dumpStem(function.getName().str(), target + "\n" + text.str());
  dump.write(stem, "graph.mlir", text);

  RaiseResult raised = raise(function, fusions());
  Json regions = Json::array(), nearMisses = Json::array();
  for (const NamedRegion& region : raised.regions)
    regions.push_back({{"pattern", region.pattern.str()}, {"results", region.results}});
  for (const NearMiss& miss : raised.nearMisses)
    nearMisses.push_back({{"pattern", miss.pattern}, {"at", miss.at}, {"condition", miss.condition}});
  ir::simplify(function);
  if (dump.enabled())
    dump.write(stem, "raised.mlir", ir::printGraph(*graph, true));
  normalize(function);
  if (dump.enabled())
    dump.write(stem, "small.mlir", ir::printGraph(*graph, true));
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
