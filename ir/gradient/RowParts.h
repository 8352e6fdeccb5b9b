// A function that walks the rows of one input, cut into parts: what is known before any row is read, what any number of
// rows gives, and what is made of all rows' results. So the rows may come in pieces, one behind the other, and the
// pieces need not exist together: the logits of a loss (frontends/torch/cermet/loss/chunks.py).
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <optional>
#include <vector>

namespace cermet::ir {

// The symbol that counts the rows of a piece.
inline constexpr llvm::StringLiteral kRows = "rows";

// One of the three, as a graph of its own.
struct RowPart {
  // Where an argument comes from: an input of the function, by its number, or a result of another part.
  struct Origin {
    enum From { Input, Before, Rows } from;
    int index;
  };

  mlir::OwningOpRef<mlir::ModuleOp> graph; // null where there is nothing to compute
  std::vector<Origin> inputs;              // one for each argument
};

// No operation is another than the function's, and each rounds where it did. What has rows, in `rows`, has all their
// dimensions in one, `kRows`, in front of its others, of which there is at least one: so an argument has them, and
// takes the piece of what it comes from, and so have all results. Behind those that `after` takes stand the function's
// results of the walked input's shape, in order; the others are the results of `after`, in order.
struct RowParts {
  RowPart before; // "<name>_before", of whole inputs
  RowPart rows;   // "<name>_rows", of a piece
  RowPart kept;   // "<name>_rows_kept", of a piece: which of its rows may give anything but zeros (KeptRows.h)
  RowPart after;  // "<name>_after", of whole inputs, and of the pieces' results one behind the other
};

// A part of such a graph and of where its arguments come from: without those that nothing reads. Nothing where it is no
// graph.
std::optional<RowPart> finishPart(mlir::OwningOpRef<mlir::ModuleOp> graph, std::vector<RowPart::Origin> origins);

// `walked` is the number of an input [rows..., columns], of a function in small operations. Nothing where rows are not
// independent of one another up to one number each, as where a row needs a sum over all of them.
std::optional<RowParts> splitRows(mlir::func::FuncOp function, unsigned walked);

} // namespace cermet::ir
