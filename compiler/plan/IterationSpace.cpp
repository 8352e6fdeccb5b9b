#include "compiler/plan/IterationSpace.h"
#include "compiler/plan/LowerOperations.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include <algorithm>
#include <fmt/format.h>

namespace cermet {

using llvm::SmallVector;
using mlir::Operation;
using mlir::RankedTensorType;
using mlir::Value;

IterationSpace::IterationSpace(const Computation& computation, mlir::func::FuncOp function, bool& appendsColumn)
    : computation(computation), function(function), appendsColumn(appendsColumn) {
  for (auto [position, operand] : llvm::enumerate(computation.operands))
    operands[operand] = static_cast<int>(position);
}

void IterationSpace::markLive() {
  SmallVector<Operation*> pending;
  auto add = [&](Value value) {
    if (!liveValues.insert(value).second)
      return;
    if (Operation* op = producer(value); op && live.insert(op).second)
      pending.push_back(op);
  };
  for (Value result : computation.results) {
    readValues.insert(result);
    add(result);
  }
  while (!pending.empty()) {
    Operation* op = pending.pop_back_val();
    for (Value value : op->getOperands()) {
      if (!readsStored(op))
        readValues.insert(value);
      add(value);
    }
  }
}

// The iteration space is the largest shape: highest rank, then fewest 1s, then first.
std::string IterationSpace::chooseSpace() {
  auto fewerOnes = [](const ir::Dimensions& a, const ir::Dimensions& b) {
    auto extent = [](const ir::Dimension& dimension) { return !dimension.isOne(); };
    return llvm::count_if(a, extent) > llvm::count_if(b, extent);
  };
  bool found = false;
  auto consider = [&](Value value) -> std::string {
    if (!liveValues.contains(value))
      return "";
    if (!llvm::isa<RankedTensorType>(value.getType()) || !dtypeOf(value.getType()))
      return fmt::format("{} is {}; kernels take tensors of {}", described(value), ir::typeText(value.getType()),
                         elementNames(/*inKernels=*/true));
    if (!readValues.contains(value))
      return "";
    ir::Dimensions shape = shapeOf(value);
    for (const ir::Dimension& dimension : shape)
      if (dimension.size == 0)
        return fmt::format("{} has shape {}, which holds no element", described(value), ir::shapeText(shape));
    if (!found || shape.size() > tile.size() || (shape.size() == tile.size() && fewerOnes(shape, tile)))
      tile = shape;
    found = true;
    return "";
  };
  for (Value operand : computation.operands)
    if (std::string reason = consider(operand); !reason.empty())
      return reason;
  for (Operation* op : computation.ops)
    for (Value value : op->getResults())
      if (std::string reason = consider(value); !reason.empty())
        return reason;
  if (!found)
    return "it holds no tensor";
  return tile.back().isSymbol() ? appendColumn() : "";
}

// Elementwise work needs no columns: where the last dimension is symbolic it counts as rows, of one column each.
std::string IterationSpace::appendColumn() {
  for (Operation* op : live)
    if (reduction(*op) || llvm::isa<ir::CumsumOp, ir::SumRowsOp, ir::PickOp>(op) || readsStored(op))
      return fmt::format("the last dimension of {} is symbolic; a kernel that {} is compiled for a number of columns",
                         ir::shapeText(tile),
                         llvm::isa<ir::PickOp>(op) ? "picks"
                         : readsStored(op)         ? "gathers"
                                                   : "sums");
  if (tile.size() == kMaxRank)
    return fmt::format("{} has {} dimensions and the last is symbolic; a kernel takes {} such", ir::shapeText(tile),
                       tile.size(), kMaxRank - 1);
  appendsColumn = true;
  tile.push_back(ir::Dimension{});
  return "";
}

bool IterationSpace::readsStored(Operation* op) {
  return llvm::isa<ir::GatherOp, ir::EmbeddingBagOp, ir::ColumnsOp>(op);
}

ir::Dimensions IterationSpace::shapeOf(Value value) const {
  ir::Dimensions shape = ir::dimensions(llvm::cast<RankedTensorType>(value.getType()));
  if (shape.empty() || appendsColumn)
    shape.push_back(ir::Dimension{});
  return shape;
}

void IterationSpace::carry(const ir::Dimensions& shape) {
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    if (!shape[i].isOne())
      carried.set(i + tile.size() - shape.size());
}

bool IterationSpace::isRowShape(const ir::Dimensions& shape) const {
  return shape.size() == tile.size() && shape.back().isOne() &&
         std::equal(shape.begin(), shape.end() - 1, tile.begin());
}

std::optional<Space> IterationSpace::classify(const ir::Dimensions& shape) const {
  if (shape == tile)
    return Space::Element;
  size_t missing = tile.size() - shape.size(); // the tile has the highest rank
  auto isOne = [](const ir::Dimension& dimension) { return dimension.isOne(); };
  for (size_t i = 0; i < shape.size(); ++i)
    if (!shape[i].isOne() && !(shape[i] == tile[missing + i]))
      return std::nullopt;
  bool oneRow = std::all_of(shape.begin(), shape.end() - 1, isOne);
  if (shape.back().isOne() && oneRow)
    return Space::Uniform;
  if (shape.back().isOne() && !tile.back().isOne())
    return Space::Row;
  return oneRow ? Space::Column : Space::Element;
}

int IterationSpace::rowExtentsOf(Value value, size_t from, size_t to) const {
  ir::Dimensions shape = shapeOf(value);
  int extents = 0;
  for (size_t dim = from; dim < to; ++dim)
    if (size_t place = dim + tile.size() - shape.size(); place + 1 < tile.size() && !shape[dim].isOne())
      extents |= 1 << place;
  return extents;
}

std::string IterationSpace::operandName(int position) const {
  return function ? ir::argumentName(function, position) : fmt::format("operand{}", position);
}

std::string IterationSpace::described(Value value) const {
  if (auto operand = operands.find(value); operand != operands.end())
    return operandName(operand->second);
  Operation* op = value.getDefiningOp();
  llvm::StringRef kind = op->getName().getStringRef(), name = function ? ir::nodeName(op->getLoc()) : "";
  return name.empty() ? kind.str() : fmt::format("{} {}", kind, name);
}

std::string IterationSpace::misfit(Value value) const {
  return fmt::format("{} has shape {}, which is no tile, row or column of {}", described(value),
                     ir::shapeText(shapeOf(value)), ir::shapeText(tile));
}

} // namespace cermet
