// Operations of a graph that become one region though no single operation of the dialect has their meaning: a rotary
// embedding of queries and keys, a loss. They keep their own operations; the region's text holds them one by one.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"
#include <map>
#include <string>
#include <vector>

namespace cermet {

struct Selection {
  std::string pattern;               // what reports call it: "rope"
  std::map<std::string, int> counts; // of what it holds, by the names that reports use
  llvm::SetVector<mlir::Operation*> ops;

  // What `complete` finds, in block order.
  llvm::SmallVector<mlir::Value> operands, results;
  mlir::Operation* readTooEarly = nullptr; // whose result others read before the last of the operands exists
  mlir::Operation* readInside = nullptr;   // a step of a node, and not its last, that others read
};

// Values by which a frontend can name things: of the operations that one node of its graph became, the last one's.
class NodeValues {
public:
  explicit NodeValues(mlir::func::FuncOp function);
  bool isNodes(mlir::Value value) const;

private:
  llvm::DenseMap<mlir::StringAttr, mlir::Operation*> last;
};

// Adds what belongs to the selection's nodes and the constants that it reads, and fills operands and results. What else
// it reads is an operand; what others read is a result, unless it is a view, cast or broadcast of operands, or a
// reshape of a result, which stays where it is for them. Answers why it cannot be replaced, or "".
std::string complete(Selection& selection, const NodeValues& nodes);

// The text of one function named after the selection's pattern. Row dimensions are symbols where no operation depends
// on them; locations and names of the graph are left out, so that equal selections have equal text.
std::string textOf(const Selection& selection);

} // namespace cermet
