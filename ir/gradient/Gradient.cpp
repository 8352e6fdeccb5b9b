// A gradient in three steps. The joint function holds the forward in small operations followed by the backward, built
// from the operations' vector-Jacobian products (ir/gradient/Vjp.cpp). It is then cut (ir/gradient/Cut.h): the
// backward's part takes what lies before the cut as arguments and recomputes the rest. What the cut saves becomes
// further results of the forward.
#include "ir/gradient/Gradient.h"
#include "ir/transforms/Decompose.h"
#include "ir/text/ErrorText.h"
#include "ir/dialect/Formula.h"
#include "ir/gradient/Cut.h"
#include "ir/gradient/Joined.h"
#include "ir/gradient/Shift.h"
#include "ir/text/Text.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;

namespace cermet::ir {

static bool isFloatTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa<FloatType>(tensor.getElementType());
}

static NameLoc nameLoc(MLIRContext* context, const Twine& name) {
  return NameLoc::get(StringAttr::get(context, name));
}

//===--- The joint function ------------------------------------------------------------------------------------------//

// Adds cotangent arguments (one for each float output, null in `cotangents` for others) and the wanted gradients as
// further operands of the return.
static LogicalResult buildJoint(func::FuncOp function, ArrayRef<bool> wanted, SmallVector<Value>& cotangents) {
  Block& block = function.getBody().front();
  Operation* terminator = block.getTerminator();
  llvm::DenseSet<Value> active;
  for (BlockArgument input : function.getArguments())
    if (wanted[input.getArgNumber()])
      active.insert(input);
  SmallVector<Operation*> forward;
  for (Operation& op : block.without_terminator()) {
    forward.push_back(&op);
    if (llvm::any_of(op.getOperands(), [&](Value operand) { return active.contains(operand); }))
      for (Value result : op.getResults())
        if (isFloatTensor(result.getType()))
          active.insert(result);
  }

  llvm::SmallPtrSet<Operation*, 8> shifts; // judged before the gradient reads their values too
  for (auto largest : block.getOps<ReduceMaxOp>())
    if (isShift(largest))
      shifts.insert(largest);

  OpBuilder builder(terminator);
  llvm::DenseMap<Value, Value> gradient;
  llvm::DenseMap<Value, std::pair<Joined, Location>> joins; // of gradients that are not finished
  auto finished = [&](Value value) {
    if (auto open = joins.find(value); open != joins.end()) {
      gradient[value] = joinedValue(builder, open->second.second, open->second.first);
      joins.erase(open);
    }
    return gradient.lookup(value);
  };
  auto accumulate = [&](Value value, Value cotangent, Location location) {
    auto [known, isNew] = gradient.try_emplace(value, cotangent);
    if (isNew)
      return;
    auto [open, isFirst] = joins.try_emplace(value, Joined(), location);
    const bool isJoin = !isFirst || join(open->second.first, known->second);
    if (isJoin && join(open->second.first, cotangent)) {
      open->second.second = location;
      return;
    }
    if (isFirst)
      joins.erase(open);
    Value sum = finished(value);
    gradient[value] = Formula(builder, location).add(sum, cotangent);
  };
  SmallVector<Value> outputs(terminator->getOperands());
  // All at once: each time, the function's type is made again.
  SmallVector<Type> types;
  SmallVector<Location> locations;
  for (auto [index, output] : llvm::enumerate(outputs))
    if (isFloatTensor(output.getType())) {
      types.push_back(output.getType());
      locations.push_back(nameLoc(function.getContext(), "grad_" + Twine(index)));
    }
  const unsigned inputs = function.getNumArguments();
  if (failed(function.insertArguments(SmallVector<unsigned>(types.size(), inputs), types,
                                      SmallVector<DictionaryAttr>(types.size()), locations)))
    return failure();
  auto given = block.getArguments().drop_front(inputs).begin();
  for (Value output : outputs) {
    cotangents.push_back(isFloatTensor(output.getType()) ? Value(*given++) : Value());
    if (Value cotangent = cotangents.back(); cotangent && active.contains(output))
      accumulate(output, Formula(builder, cotangent.getLoc()).widen(cotangent), cotangent.getLoc());
  }

  for (Operation* op : llvm::reverse(forward)) {
    SmallVector<Value> given;
    for (Value result : op->getResults())
      given.push_back(active.contains(result) ? finished(result) : Value());
    if (llvm::none_of(given, [](Value value) { return bool(value); }))
      continue;
    if (shifts.contains(op))
      continue;
    auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
    if (!differentiable) {
      InFlightDiagnostic message = op->emitOpError();
      if (auto opaque = dyn_cast<OpaqueOp>(op))
        message << '"' << opaque.getTarget() << "\" ";
      return message << "lies between a wanted input and an output and has no gradient";
    }
    SmallVector<Value> computed = differentiable.buildGradient(builder, given);
    if (computed.size() != op->getNumOperands())
      return failure();
    for (auto [operand, cotangent] : llvm::zip(op->getOperands(), computed))
      if (cotangent && active.contains(operand))
        accumulate(operand, cotangent, op->getLoc());
  }

  SmallVector<Value> results = outputs;
  for (auto [index, isWanted] : llvm::enumerate(wanted)) {
    if (!isWanted)
      continue;
    Value input = function.getArgument(index), value = finished(input);
    Formula f(builder, input.getLoc());
    results.push_back(value ? castParts(f, value, typeOf(input).getElementType()) : f.number(input.getType(), 0));
  }
  terminator->setOperands(results);
  function.setFunctionType(
      FunctionType::get(function.getContext(), function.getArgumentTypes(), terminator->getOperandTypes()));
  return success();
}

//===--- Its two parts -----------------------------------------------------------------------------------------------//

static OwningOpRef<ModuleOp> buildBackward(func::FuncOp joint, int inputs, int outputs, const GradientCut& cut,
                                           ArrayRef<Value> cotangents, StringRef name,
                                           std::vector<Gradient::Origin>& origins) {
  MLIRContext* context = joint.getContext();
  OwningOpRef<ModuleOp> module = createGraph(*context);
  OpBuilder builder(module->getBodyRegion());
  auto function = func::FuncOp::create(builder, joint.getLoc(), name, FunctionType::get(context, {}, {}));
  Block* block = function.addEntryBlock();
  builder.setInsertionPointToStart(block);
  Operation* terminator = joint.getBody().front().getTerminator();

  IRMapping mapping;
  auto argument = [&](Gradient::Origin::From from, int index, Type type, Location location) {
    origins.push_back({from, index});
    return block->addArgument(type, location);
  };
  for (int index : cut.inputs)
    mapping.map(joint.getArgument(index), argument(Gradient::Origin::Input, index, joint.getArgument(index).getType(),
                                                   joint.getArgument(index).getLoc()));
  for (int index : cut.outputs) {
    Value output = terminator->getOperand(index);
    mapping.map(output,
                argument(Gradient::Origin::Output, index, output.getType(), nameLoc(context, "output" + Twine(index))));
  }
  for (auto [index, saved] : llvm::enumerate(cut.saved)) {
    NameLoc location = nameLoc(context, "saved" + Twine(index));
    Value given = argument(Gradient::Origin::Saved, index, wideType(typeOf(saved)), location);
    mapping.map(saved, Formula(builder, location).cast(given, typeOf(saved).getElementType()));
  }
  for (auto [index, cotangent] : llvm::enumerate(cotangents))
    if (cotangent && cut.needed.contains(cotangent))
      mapping.map(cotangent, argument(Gradient::Origin::Cotangent, index, cotangent.getType(), cotangent.getLoc()));

  for (Operation& op : joint.getBody().front().without_terminator())
    if (llvm::any_of(op.getResults(), [&](Value result) { return cut.needed.contains(result); }))
      builder.clone(op, mapping);
  SmallVector<Value> results;
  for (Value result : terminator->getOperands().drop_front(outputs))
    results.push_back(mapping.lookup(result));
  func::ReturnOp::create(builder, terminator->getLoc(), results);
  function.setFunctionType(FunctionType::get(context, block->getArgumentTypes(), ValueRange(results).getTypes()));
  for (auto [position, origin] : llvm::enumerate(origins))
    if (origin.from == Gradient::Origin::Input)
      if (Attribute strides = joint.getArgAttr(origin.index, "cermet.strides"))
        function.setArgAttr(position, "cermet.strides", strides);
  simplify(function);
  return module;
}

// Turns the joint function into the forward that returns what the cut saves.
static void keepForward(func::FuncOp joint, int inputs, int outputs, const GradientCut& cut) {
  Operation* terminator = joint.getBody().front().getTerminator();
  OpBuilder builder(terminator);
  SmallVector<Value> results(terminator->getOperands().take_front(outputs));
  for (Value saved : cut.saved)
    results.push_back(Formula(builder, saved.getLoc()).widen(saved));
  terminator->setOperands(results);
  simplify(joint);
  llvm::BitVector cotangents(joint.getNumArguments());
  cotangents.set(inputs, joint.getNumArguments());
  (void)joint.eraseArguments(cotangents);
  joint.setFunctionType(
      FunctionType::get(joint.getContext(), joint.getBody().getArgumentTypes(), terminator->getOperandTypes()));
}

// Returns a value that is the gradient of several inputs once. Gives the inputs of each remaining result.
static std::vector<std::vector<int>> shareEqualResults(func::FuncOp backward, ArrayRef<int> inputs) {
  Operation* terminator = backward.getBody().front().getTerminator();
  std::vector<std::vector<int>> shared;
  SmallVector<Value> results;
  for (auto [input, result] : llvm::zip_equal(inputs, terminator->getOperands())) {
    size_t at = llvm::find(results, result) - results.begin();
    if (at == results.size()) {
      results.push_back(result);
      shared.emplace_back();
    }
    shared[at].push_back(input);
  }
  terminator->setOperands(results);
  backward.setFunctionType(
      FunctionType::get(backward.getContext(), backward.getArgumentTypes(), terminator->getOperandTypes()));
  return shared;
}

//===--- Gradients in the forward ------------------------------------------------------------------------------------//

// From the joint function with a cotangent of 1: the forward that returns the gradients too.
static void makeUnit(func::FuncOp joint, int inputs, Value cotangent) {
  Block& block = joint.getBody().front();
  OpBuilder builder(&block, block.begin());
  cotangent.replaceAllUsesWith(Formula(builder, cotangent.getLoc()).number(cotangent.getType(), 1));
  (void)joint.eraseArgument(inputs);
  joint->removeAttr(kGradientInForward);
  simplify(joint);
}

// Each gradient, times the cotangent: in f32, rounded once.
static OwningOpRef<ModuleOp> scaledGradients(ValueRange gradients, RankedTensorType cotangentType, StringRef name) {
  MLIRContext* context = cotangentType.getContext();
  OwningOpRef<ModuleOp> module = createGraph(*context);
  OpBuilder builder(module->getBodyRegion());
  auto unknown = builder.getUnknownLoc();
  SmallVector<Type> types(gradients.getTypes());
  types.push_back(cotangentType);
  auto function = func::FuncOp::create(builder, unknown, name, builder.getFunctionType(types, gradients.getTypes()));
  Block* block = builder.createBlock(&function.getBody());
  for (size_t i = 0; i < gradients.size(); ++i)
    block->addArgument(types[i], nameLoc(context, "saved" + Twine(i)));
  Value cotangent = block->addArgument(cotangentType, nameLoc(context, "grad_0"));
  Formula f(builder, unknown);
  cotangent = f.widen(cotangent);
  SmallVector<Value> results;
  for (Value given : block->getArguments().drop_back()) {
    Value wide = f.widen(given);
    Value factor = f.cast(cotangent, typeOf(wide).getElementType());
    results.push_back(f.cast(f.mul(wide, f.broadcast(factor, wide.getType())), typeOf(given).getElementType()));
  }
  func::ReturnOp::create(builder, unknown, results);
  return module;
}

static LogicalResult differentiateInForward(OwningOpRef<ModuleOp> module, int inputs, ArrayRef<bool> wanted,
                                            ArrayRef<Value> cotangents, Gradient& gradient) {
  func::FuncOp joint = graphFunction(*module);
  if (cotangents.size() != 1 || !cotangents[0] || typeOf(cotangents[0]).getRank() != 0)
    return joint.emitError() << "@" << joint.getName() << " has " << kGradientInForward
                             << ", expected one result: a float of rank 0";
  std::string name = joint.getName().str();
  auto cotangentType = typeOf(cotangents[0]);
  makeUnit(joint, inputs, cotangents[0]);
  ValueRange gradients = joint.getBody().front().getTerminator()->getOperands().drop_front();
  gradient.isUnit = true;
  gradient.saved = gradients.size();
  gradient.backward = scaledGradients(gradients, cotangentType, name + "_backward");
  for (int index = 0; index < gradient.saved; ++index)
    gradient.backwardInputs.push_back({Gradient::Origin::Saved, index});
  gradient.backwardInputs.push_back({Gradient::Origin::Cotangent, 0});
  for (auto [index, isWanted] : llvm::enumerate(wanted))
    if (isWanted)
      gradient.backwardOutputs.push_back({int(index)});
  joint.setFunctionType(FunctionType::get(joint.getContext(), joint.getBody().getArgumentTypes(),
                                          joint.getBody().front().getTerminator()->getOperandTypes()));
  joint.setName(name + "_forward");
  gradient.forward = std::move(module);
  for (ModuleOp part : {*gradient.forward, *gradient.backward})
    if (failed(verify(part)) || failed(verifyGraph(part)))
      return failure();
  return success();
}

static LogicalResult differentiate(ModuleOp graph, ArrayRef<bool> wanted, Gradient& gradient) {
  func::FuncOp original = graphFunction(graph);
  std::string name = original.getName().str();
  int inputs = original.getNumArguments();
  if (int(wanted.size()) != inputs)
    return original.emitError() << "@" << name << " has " << inputs << " inputs, given `wanted` for " << wanted.size();
  for (auto [index, isWanted] : llvm::enumerate(wanted))
    if (isWanted && !isFloatTensor(original.getArgument(index).getType()))
      return original.emitError() << "input " << index << " (" << argumentName(original, index) << ") has type "
                                  << original.getArgument(index).getType()
                                  << ", expected a float tensor where a gradient is wanted";

  OwningOpRef<ModuleOp> module = graph.clone();
  func::FuncOp joint = graphFunction(*module);
  decomposeFused(joint);
  simplify(joint);
  gradient = Gradient();
  gradient.outputs = original.getNumResults();
  SmallVector<Value> cotangents;
  if (failed(buildJoint(joint, wanted, cotangents)))
    return failure();
  simplify(joint);
  if (original->hasAttr(kGradientInForward))
    return differentiateInForward(std::move(module), inputs, wanted, cotangents, gradient);

  FailureOr<GradientCut> cut = cutGradient(joint, inputs, gradient.outputs);
  if (failed(cut))
    return failure();
  gradient.saved = cut->saved.size();
  gradient.backward =
      buildBackward(joint, inputs, gradient.outputs, *cut, cotangents, name + "_backward", gradient.backwardInputs);
  SmallVector<int> wantedInputs;
  for (int index = 0; index < inputs; ++index)
    if (wanted[index])
      wantedInputs.push_back(index);
  gradient.backwardOutputs = shareEqualResults(graphFunction(*gradient.backward), wantedInputs);
  if (cut->saved.empty()) {
    gradient.forward = graph.clone();
  } else {
    keepForward(joint, inputs, gradient.outputs, *cut);
    gradient.forward = std::move(module);
  }
  graphFunction(*gradient.forward).setName(name + "_forward");
  for (ModuleOp part : {*gradient.forward, *gradient.backward})
    if (failed(verify(part)) || failed(verifyGraph(part)))
      return failure();
  return success();
}

bool differentiate(ModuleOp graph, ArrayRef<bool> wanted, Gradient& gradient, std::string& error) {
  error.clear();
  ErrorText errors(*graph.getContext(), error);
  return succeeded(differentiate(graph, wanted, gradient));
}

} // namespace cermet::ir
