// Questions that patterns ask of a value graph.
#pragma once
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>
#include <string>

namespace cermet {

mlir::Type elementType(mlir::Value value);
std::string elementText(mlir::Value value); // "bf16"
std::string shapeText(mlir::Value value);   // "[r0, 4096]"
std::string numberText(double number);      // the shortest text that reads back as it

// Values are equal by construction: one value, or equal pure operations on equal values. A traced graph casts its input
// to f32 as often as its author wrote so.
bool sameValue(mlir::Value a, mlir::Value b);

// The number that `value` holds everywhere, where it is a constant, broadcast, reshaped or widened or not.
std::optional<double> constantValue(mlir::Value value);

// `value` is a cast that loses nothing: where it comes from.
mlir::Value widenedFrom(mlir::Value value);

// A reshape that keeps rows: the last dimension is a number and stays, the others are arranged differently.
bool keepsRows(mlir::Operation* op);
// `value`, what it is a reshape of that keeps rows, what that is a reshape of, and so on.
llvm::SmallVector<mlir::Value> reshapedFrom(mlir::Value value);
// The value among them that has the shape of `like`; null if none has. A region's values are values of the graph, so
// that a frontend can hand them over: a reshape amid a sequence is looked through, and one shape is found for its ends.
mlir::Value inShapeOf(mlir::Value like, mlir::Value value);
bool sameShape(mlir::Value a, mlir::Value b);
// Values are equal by construction but for reshapes that keep rows, before or behind casts.
bool sameRows(mlir::Value a, mlir::Value b);
// The only reader of `value`, if it is a reshape that keeps rows.
mlir::Operation* onlyReshape(mlir::Value value);

// `value` is what a write made of another value, a new version of it or what the call returns (its target, by PyTorch's
// custom): that value.
mlir::Value versionedFrom(mlir::Value value);
// Whether `op` is a write, and `value` one of those that it changes.
bool writes(mlir::Operation* op, mlir::Value value);
// "inner value `to_3` is written in place by `add__1`".
std::string writtenText(mlir::Value value, mlir::Operation* write);

// The last of a block's operations that makes one of the values; null where every one is an argument. One operation
// that takes the values stands right behind it.
mlir::Operation* lastMaker(mlir::ValueRange values);

// A user, at most as late as the last operand's maker, that reads a result or writes an operand.
struct Obstacle {
  mlir::Value value; // a result or an operand
  mlir::Operation* user;
  bool isWrite;
};

// The first obstacle, results first, that keeps one operation from making `results` of `operands` in place of the
// operations that `isReplaced`; nothing where there is a place for it.
std::optional<Obstacle> obstacle(mlir::ValueRange operands, mlir::ValueRange results,
                                 llvm::function_ref<bool(mlir::Operation*)> isReplaced);

} // namespace cermet
