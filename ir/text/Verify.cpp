// What makes a module a graph, beyond what MLIR and each operation verify.
#include "frontends/c/cermet.h"
#include "ir/dialect/Body.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "runtime/abi/Limits.h"

using namespace mlir;

namespace cermet::ir {

// Types of other kinds are legal: a scalar that only opaque operations read arrives as one.
static LogicalResult verifyType(llvm::function_ref<InFlightDiagnostic()> emitError, Type type) {
  if (isa<UnrankedTensorType>(type))
    return emitError() << type << " has no rank, expected a ranked tensor";
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return success();
  if (tensor.getRank() > CERMET_MAX_RANK)
    return emitError() << tensor << " has rank " << tensor.getRank() << ", expected at most " << CERMET_MAX_RANK;
  auto symbols = dyn_cast_or_null<SymbolsAttr>(tensor.getEncoding());
  if (tensor.getEncoding() && !symbols)
    return emitError() << tensor << " has encoding " << tensor.getEncoding() << ", expected #cermet.symbols";
  if (!tensor.hasStaticShape() && !symbols)
    return emitError() << tensor << " has " << tensor.getNumDynamicDims()
                       << " unnamed dimensions, expected #cermet.symbols<[\"name\", ...]> with a name for each '?'";
  int64_t elements = 1;
  for (int64_t size : tensor.getShape()) {
    if (ShapedType::isDynamic(size))
      continue;
    if (size == 0)
      return emitError() << tensor << " has a dimension of size 0, expected sizes of at least 1";
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxDimension)
      return emitError() << tensor << " has more elements than 2^60";
  }
  return success();
}

static LogicalResult verifyArguments(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto emitError = [&] {
      return mlir::emitError(argument.getLoc())
             << "argument " << index << " (" << argumentName(function, index) << ") ";
    };
    if (failed(verifyType(emitError, argument.getType())))
      return failure();
    Attribute attribute = function.getArgAttr(index, "cermet.strides");
    if (!attribute)
      continue;
    auto strides = dyn_cast<DenseI64ArrayAttr>(attribute);
    auto tensor = dyn_cast<RankedTensorType>(argument.getType());
    if (!strides || !tensor)
      return emitError() << "has cermet.strides " << attribute << ", expected array<i64: ...> on a tensor";
    if (strides.size() != tensor.getRank())
      return emitError() << "has " << strides.size() << " strides, expected " << tensor.getRank()
                         << " (one for each dimension, in elements, -1 where unknown)";
    for (int64_t stride : strides.asArrayRef())
      if (stride < -1)
        return emitError() << "has stride " << stride << ", expected at least 0, or -1 where unknown";
  }
  return success();
}

static LogicalResult verifyFunction(func::FuncOp function) {
  if (!llvm::hasSingleElement(function.getBody()))
    return function.emitError() << "@" << function.getName() << " has " << function.getBody().getBlocks().size()
                                << " blocks, expected a body of one";
  if (failed(verifyArguments(function)))
    return failure();
  for (Operation& op : function.getBody().front()) {
    if (isa<func::ReturnOp>(op))
      continue;
    if (!isa_and_nonnull<CermetDialect>(op.getDialect()) || op.getNumRegions() != 0)
      return op.emitError() << "'" << op.getName() << "' has no place in a graph, expected cermet operations";
    for (OpResult result : op.getResults()) {
      auto emitError = [&] { return op.emitOpError() << "result " << result.getResultNumber() << " of type "; };
      if (failed(verifyType(emitError, result.getType())))
        return failure();
    }
    if (failed(verifyBody(&op)))
      return failure();
  }
  return success();
}

LogicalResult verifyGraph(ModuleOp graph) {
  auto version = graph->getAttrOfType<IntegerAttr>("cermet.version");
  if (!version || !version.getType().isSignlessInteger(64))
    return graph.emitError() << "the module has no cermet.version, expected `cermet.version = 1 : i64`";
  if (version.getInt() != 1)
    return graph.emitError() << "cermet.version is " << version.getInt() << ", expected 1";
  if (Attribute sizes = graph->getAttr(kSizes)) {
    auto dictionary = dyn_cast<DictionaryAttr>(sizes);
    auto isSize = [](NamedAttribute item) {
      auto number = dyn_cast<IntegerAttr>(item.getValue());
      return number && number.getType().isSignlessInteger(64) && number.getInt() > 0;
    };
    if (!dictionary || !llvm::all_of(dictionary, isSize))
      return graph.emitError() << "cermet.sizes is " << sizes << ", expected symbols with numbers of at least 1";
  }
  Block* body = graph.getBody();
  const bool isGraph =
      !body->empty() && isa<func::FuncOp>(body->front()) && llvm::all_of(llvm::drop_begin(*body), [](Operation& op) {
        auto function = dyn_cast<func::FuncOp>(op);
        return function && function.isPrivate();
      });
  if (!isGraph)
    return graph.emitError() << "the module has " << body->getOperations().size()
                             << " operations, expected one func.func, and behind it private ones only";
  for (func::FuncOp function : graph.getOps<func::FuncOp>())
    if (failed(verifyFunction(function)))
      return failure();
  for (func::FuncOp function : llvm::drop_begin(graph.getOps<func::FuncOp>()))
    for (Operation& op : function.getBody().front())
      if (op.hasAttr(kBody))
        return op.emitOpError() << "has cermet.body in a private function, expected it in the graph's only";
  return success();
}

} // namespace cermet::ir
