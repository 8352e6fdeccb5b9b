// The text form of a graph: public, versioned (docs/ir.md), one `func.func`, and private ones that are bodies of its
// operations (ir/dialect/Body.h), in a module that carries `cermet.version = 1 : i64`. Whatever text comes in,
// parseGraph answers with a verified module or with an error that has a place; it does not crash on nonsense, on deep
// nesting or on huge input.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet::ir {

// A module's attribute, of unit type: nobody will differentiate the graph.
inline constexpr llvm::StringLiteral kNoGradient = "cermet.no_gradient";

// A module's attribute: a dictionary of what symbols are for now, by which the bytes that a graph moves are judged.
inline constexpr llvm::StringLiteral kSizes = "cermet.sizes";

// Loads the dialects of a graph and switches the context's threads off. Call once for each context.
void registerDialects(mlir::MLIRContext& context);

// Null with `error` filled ("graph:LINE:COLUMN: message", a line for each diagnostic) unless the text is a graph that
// verifies. Every argument has a name afterwards, its loc("...") or else what it is called in the text, and every named
// operation knows its line.
mlir::OwningOpRef<mlir::ModuleOp> parseGraph(llvm::StringRef text, mlir::MLIRContext& context, std::string& error);

// The text of a graph that parseGraph reads back. With locations, operations and arguments carry loc("name") where they
// have names; without, only the arguments' names survive, as the names of their SSA values, so that equal graphs have
// equal text whatever their nodes were called.
std::string printGraph(mlir::ModuleOp graph, bool withLocations);

// What verification of a module does not cover: which functions it has, named dimensions, ranks up to 8, no zero or
// overflowing size, sane argument attributes, nothing but operations of the dialect. Emits an error where it fails.
llvm::LogicalResult verifyGraph(mlir::ModuleOp graph);

// The function that a graph is: its first.
mlir::func::FuncOp graphFunction(mlir::ModuleOp graph);

// An empty module with the version attribute.
mlir::OwningOpRef<mlir::ModuleOp> createGraph(mlir::MLIRContext& context);

// The frontend's name for a node: the first name in its location, "" if there is none.
llvm::StringRef nodeName(mlir::Location location);
// The name of an argument, as given or "arg<index>".
std::string argumentName(mlir::func::FuncOp function, unsigned index);
// The line of the graph's text that an operation came from, 0 if it came from none.
unsigned textLine(mlir::Location location);

} // namespace cermet::ir
