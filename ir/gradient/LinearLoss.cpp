#include "ir/gradient/LinearLoss.h"
#include "ir/dialect/Formula.h"
#include "ir/gradient/RowParts.h"
#include "ir/text/ErrorText.h"
#include "ir/text/Text.h"
#include "ir/transforms/Decompose.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cermet::ir {

// The number of the input that an operand is, if nothing else reads it.
static FailureOr<unsigned> inputOf(LinearCrossEntropyOp op, StringRef role, Value operand) {
  auto input = dyn_cast<BlockArgument>(operand);
  if (!input)
    return op.emitOpError() << role << " is computed in the graph, expected one of its inputs";
  if (!input.hasOneUse())
    return op.emitOpError() << role << " is read elsewhere in the graph, expected this to be its only reader";
  return input.getArgNumber();
}

static LogicalResult cut(ModuleOp graph, LinearLoss& result) {
  func::FuncOp original = graphFunction(graph);
  const auto count = llvm::range_size(original.getOps<LinearCrossEntropyOp>());
  if (count != 1)
    return original.emitError() << "@" << original.getName() << " has " << count
                                << " cermet.linear_cross_entropy, expected one";
  result.loss = graph.clone();
  func::FuncOp function = graphFunction(*result.loss);
  LinearCrossEntropyOp op = *function.getOps<LinearCrossEntropyOp>().begin();
  if (typeOf(op.getHidden()).getElementType().isF64())
    return op.emitOpError() << "hidden has element type f64, expected one that kernels compute: f32, bf16 or f16";
  FailureOr<unsigned> hidden = inputOf(op, "hidden", op.getHidden()), weight = inputOf(op, "weight", op.getWeight());
  if (failed(hidden) || failed(weight))
    return failure();
  result.hidden = *hidden;
  result.weight = *weight;
  if (op.getBias()) {
    FailureOr<unsigned> bias = inputOf(op, "bias", op.getBias());
    if (failed(bias))
      return failure();
    result.bias = static_cast<int>(*bias);
  }
  result.columns = typeOf(op.getWeight()).getDimSize(0);
  decomposeFused(function);
  auto product = cast<MatmulOp>(*function.getArgument(*hidden).getUsers().begin());
  const unsigned last = function.getNumArguments();
  if (failed(function.insertArgument(last, product.getType(), {},
                                     NameLoc::get(StringAttr::get(graph.getContext(), "logits")))))
    return failure();
  product.getResult().replaceAllUsesWith(function.getArgument(last));
  product.erase();
  simplify(function);
  return success();
}

bool cutLinearLoss(ModuleOp graph, LinearLoss& result, std::string& error) {
  error.clear();
  ErrorText errors(*graph.getContext(), error);
  return succeeded(cut(graph, result));
}

// A function of rows; `body` gives its result.
static OwningOpRef<ModuleOp> ofRows(MLIRContext& context, StringRef name, int64_t columns, Type from,
                                    llvm::function_ref<Value(Formula&, Value)> body) {
  OwningOpRef<ModuleOp> module = createGraph(context);
  OpBuilder builder(module->getBodyRegion());
  auto unknown = builder.getUnknownLoc();
  Type type = tensorType({{ShapedType::kDynamic, StringAttr::get(&context, kRows)}, {columns, {}}}, from);
  auto function = func::FuncOp::create(builder, unknown, name, builder.getFunctionType({type}, {}));
  Block* block = builder.createBlock(&function.getBody());
  Value given = block->addArgument(type, NameLoc::get(StringAttr::get(&context, "x")));
  Formula f(builder, unknown);
  Value result = body(f, given);
  func::ReturnOp::create(builder, unknown, result);
  function.setFunctionType(builder.getFunctionType({type}, {result.getType()}));
  return module;
}

OwningOpRef<ModuleOp> roundedRows(MLIRContext& context, StringRef name, int64_t columns, Type from, Type to) {
  return ofRows(context, name, columns, from, [&](Formula& f, Value x) { return f.cast(x, to); });
}

OwningOpRef<ModuleOp> summedRows(MLIRContext& context, StringRef name, int64_t columns, Type from, Type to) {
  return ofRows(context, name, columns, from, [&](Formula& f, Value x) { return f.cast(f.sumRows(f.widen(x)), to); });
}

} // namespace cermet::ir
