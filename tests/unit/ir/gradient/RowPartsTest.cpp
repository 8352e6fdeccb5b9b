// A function cut by its rows, run in pieces by the float64 interpreter, against the function itself.
#include "ir/gradient/RowParts.h"
#include "ir/gradient/Gradient.h"
#include "ir/transforms/Decompose.h"
#include "tests/unit/ir/GraphTest.h"
#include <algorithm>

using namespace mlir;

namespace cermet::ir {
namespace {

constexpr int64_t kCount = 6, kColumns = 4;

class RowPartsTest : public GraphTest {
protected:
  // The function's own parts, rows of its input 0.
  std::optional<RowParts> split(const std::string& text) {
    graph = parse(text);
    if (!graph)
      return std::nullopt;
    decomposeFused(graphFunction(*graph));
    return splitRows(graphFunction(*graph), 0);
  }

  // Rows [from, to) of a tensor whose leading dimensions are `kCount` rows together, as `rank` dimensions.
  static Array piece(const Array& whole, int64_t from, int64_t to, size_t rank) {
    const int64_t width = int64_t(whole.data.size()) / kCount;
    Array result{{to - from}, {whole.data.begin() + from * width, whole.data.begin() + to * width}};
    result.shape.resize(rank, 1);
    if (width > 1)
      result.shape.back() = width;
    return result;
  }

  static llvm::SmallVector<int64_t> shapeOf(Type type) {
    llvm::SmallVector<int64_t> shape;
    for (int64_t size : cast<RankedTensorType>(type).getShape())
      shape.push_back(ShapedType::isDynamic(size) ? kCount : size);
    return shape;
  }

  // The function's results from its parts, with pieces of `size` rows.
  std::vector<Array> inPieces(RowParts& parts, ArrayRef<Array> inputs, int64_t size) {
    std::vector<Array> before;
    if (parts.before.graph) {
      std::vector<Array> given;
      for (RowPart::Origin origin : parts.before.inputs)
        given.push_back(inputs[origin.index]);
      before = run(*parts.before.graph, given, true);
    }
    func::FuncOp rows = graphFunction(*parts.rows.graph);
    std::vector<Array> walked(rows.getNumResults());
    for (int64_t from = 0; from < kCount; from += size) {
      const int64_t to = std::min(from + size, kCount);
      std::vector<Array> given;
      for (auto [index, origin] : llvm::enumerate(parts.rows.inputs)) {
        const Array& whole = origin.from == RowPart::Origin::Input ? inputs[origin.index] : before[origin.index];
        auto type = cast<RankedTensorType>(rows.getArgumentTypes()[index]);
        const bool hasRows = type.getRank() > 0 && type.isDynamicDim(0);
        given.push_back(hasRows ? piece(whole, from, to, type.getRank()) : whole);
      }
      for (auto [into, made] : llvm::zip(walked, run(*parts.rows.graph, given, true))) {
        into.shape = made.shape;
        into.shape[0] = kCount;
        into.data.insert(into.data.end(), made.data.begin(), made.data.end());
      }
    }
    func::FuncOp after = graphFunction(*parts.after.graph);
    std::vector<Array> given;
    for (auto [index, origin] : llvm::enumerate(parts.after.inputs)) {
      given.push_back(origin.from == RowPart::Origin::Rows    ? walked[origin.index]
                      : origin.from == RowPart::Origin::Input ? inputs[origin.index]
                                                              : before[origin.index]);
      given.back().shape = shapeOf(after.getArgumentTypes()[index]);
    }
    std::vector<Array> results = run(*parts.after.graph, given, true);
    for (const Array& wide : ArrayRef(walked).take_back(graphFunction(*graph).getNumResults() - results.size()))
      results.push_back(wide);
    return results;
  }

  OwningOpRef<ModuleOp> graph;
};

// The mean over rows of the logarithm of a sum, and the gradient of that, of which each row needs the count of labels.
// `shape` are the rows of x, and `flat` how they are counted inside.
std::string loss(const std::string& shape, const std::string& flat, const std::string& symbols,
                 const std::string& flatSymbols) {
  auto type = [](const std::string& dims, const std::string& element, const std::string& names) {
    return "tensor<" + dims + element + (names.empty() ? "" : ", #cermet.symbols<[" + names + "]>") + ">";
  };
  const std::string x = type(shape + "x4x", "f32", symbols), wide = type(flat + "x4x", "f32", flatSymbols),
                    number = type(flat + "x1x", "f32", flatSymbols), label = type(flat + "x", "i64", flatSymbols),
                    labels = type(flat + "x1x", "i64", flatSymbols), counts = type(flat + "x1x", "i1", flatSymbols);
  std::string text = "func.func @loss(%x: " + x + ", %label: " + label + ") -> (tensor<1xf32>, " + x + ") {\n";
  text += "  %0 = cermet.reshape %x : " + x + " to " + wide + "\n";
  text += "  %1 = cermet.exp %0 : " + wide + "\n";
  text += "  %2 = cermet.reduce_sum %1 : " + wide + " to " + number + "\n";
  text += "  %3 = cermet.log %2 : " + number + "\n";
  text += "  %4 = cermet.reshape %label : " + label + " to " + labels + "\n";
  text += "  %5 = cermet.constant 1.0 : " + labels + "\n";
  text += "  %6 = cermet.compare \"ne\", %4, %5 : " + labels + " to " + counts + "\n";
  text += "  %7 = cermet.cast %6 : " + counts + " to " + number + "\n";
  text += "  %8 = cermet.mul %7, %3 : " + number + "\n";
  text += "  %9 = cermet.sum_rows %8 : " + number + " to tensor<1xf32>\n";
  text += "  %10 = cermet.sum_rows %7 : " + number + " to tensor<1xf32>\n";
  text += "  %11 = cermet.div %9, %10 : tensor<1xf32>\n";
  text += "  %12 = cermet.broadcast %10 : tensor<1xf32> to " + number + "\n";
  text += "  %13 = cermet.mul %12, %2 : " + number + "\n";
  text += "  %14 = cermet.div %7, %13 : " + number + "\n";
  text += "  %15 = cermet.broadcast %14 : " + number + " to " + wide + "\n";
  text += "  %16 = cermet.mul %15, %1 : " + wide + "\n";
  text += "  %17 = cermet.reshape %16 : " + wide + " to " + x + "\n";
  return text + "  return %11, %17 : tensor<1xf32>, " + x + "\n}";
}

TEST_F(RowPartsTest, PiecesOfAnySizeGiveTheWhole) {
  const std::string texts[] = {loss("6", "6", "", ""), loss("2x3", "6", "", ""), loss("?", "?", "\"r0\"", "\"r0\"")};
  for (const std::string& text : texts) {
    std::optional<RowParts> parts = split(text);
    ASSERT_TRUE(parts) << text;
    std::vector<Array> inputs = {random({kCount, kColumns}), Array{{kCount}, {0, 1, 2, 1, 3, 0}}};
    inputs[0].shape = shapeOf(graphFunction(*graph).getArgumentTypes()[0]);
    std::vector<Array> whole = run(*graph, inputs, true);
    for (int64_t size : {1, 4, 6}) {
      std::vector<Array> pieces = inPieces(*parts, inputs, size);
      ASSERT_EQ(pieces.size(), whole.size());
      for (auto [mine, expected] : llvm::zip(pieces, whole))
        EXPECT_EQ(mine.data, expected.data) << "pieces of " << size << " rows\n" << text;
    }
  }
}

TEST_F(RowPartsTest, RowsAreTheOnlyUnknownSizeOfAPiece) {
  std::optional<RowParts> parts = split(loss("2x3", "6", "", ""));
  ASSERT_TRUE(parts);
  const std::string rows = printGraph(*parts->rows.graph, false);
  EXPECT_NE(rows.find("@loss_rows("), std::string::npos) << rows;
  EXPECT_EQ(rows.find("sum_rows"), std::string::npos) << rows;
  EXPECT_EQ(rows.find("tensor<6x"), std::string::npos) << rows;
  EXPECT_EQ(rows.find("reshape"), std::string::npos) << rows;
  const std::string before = printGraph(*parts->before.graph, false);
  EXPECT_EQ(before.find("%x"), std::string::npos) << before;
  EXPECT_EQ(before.find("cermet.exp"), std::string::npos) << before;
}

TEST_F(RowPartsTest, ARowThatNeedsAllOthersIsNotCut) {
  const char* needsTheMean = R"(func.func @f(%x: tensor<6x4xf32>) -> (tensor<4xf32>, tensor<6x4xf32>) {
    %0 = cermet.sum_rows %x : tensor<6x4xf32> to tensor<4xf32>
    %1 = cermet.broadcast %0 : tensor<4xf32> to tensor<6x4xf32>
    %2 = cermet.sub %x, %1 : tensor<6x4xf32>
    return %0, %2 : tensor<4xf32>, tensor<6x4xf32> })";
  EXPECT_FALSE(split(needsTheMean));
  const char* alongRows = R"(func.func @f(%x: tensor<6x4xf32>) -> tensor<1xf32> {
    %0 = cermet.transpose %x [1, 0] : tensor<6x4xf32> to tensor<4x6xf32>
    %1 = cermet.reduce_max %0 : tensor<4x6xf32> to tensor<4x1xf32>
    %2 = cermet.sum_rows %1 : tensor<4x1xf32> to tensor<1xf32>
    return %2 : tensor<1xf32> })";
  EXPECT_FALSE(split(alongRows));
  const char* otherRows = R"(func.func @f(%x: tensor<6x4xf32>) -> tensor<1xf32> {
    %0 = cermet.reshape %x : tensor<6x4xf32> to tensor<4x6xf32>
    %1 = cermet.reduce_sum %0 : tensor<4x6xf32> to tensor<4x1xf32>
    %2 = cermet.exp %1 : tensor<4x1xf32>
    %3 = cermet.sum_rows %2 : tensor<4x1xf32> to tensor<1xf32>
    return %3 : tensor<1xf32> })";
  EXPECT_FALSE(split(otherRows));
  // One row may be a number that rows share.
  EXPECT_FALSE(split(loss("1", "1", "", "")));
}

TEST_F(RowPartsTest, RowsThatGiveNothingAreTold) {
  std::optional<RowParts> parts = split(loss("2x3", "6", "", ""));
  ASSERT_TRUE(parts && parts->kept.graph);
  ASSERT_EQ(parts->kept.inputs.size(), 1u);
  EXPECT_EQ(parts->kept.inputs[0].index, 1);
  std::vector<Array> kept = run(*parts->kept.graph, {Array{{kCount, 1}, {0, 1, 2, 1, 3, 1}}}, true);
  EXPECT_EQ(kept[0].data, (std::vector<double>{1, 0, 1, 0, 1, 0}));
}

TEST_F(RowPartsTest, ARowWhoseResultIsNoZeroIsKept) {
  // Where the mask of a row is zero its sum goes to the loss all the same.
  const char* added = R"(func.func @f(%x: tensor<6x4xf32>, %m: tensor<6x1xf32>) -> tensor<1xf32> {
    %0 = cermet.reduce_sum %x : tensor<6x4xf32> to tensor<6x1xf32>
    %1 = cermet.mul %0, %m : tensor<6x1xf32>
    %2 = cermet.add %0, %1 : tensor<6x1xf32>
    %3 = cermet.sum_rows %2 : tensor<6x1xf32> to tensor<1xf32>
    return %3 : tensor<1xf32> })";
  std::optional<RowParts> parts = split(added);
  ASSERT_TRUE(parts);
  EXPECT_FALSE(parts->kept.graph);
  // The walked rows decide nothing before they are read.
  const char* chosen = R"(func.func @f(%x: tensor<6x4xf32>) -> tensor<1xf32> {
    %0 = cermet.reduce_sum %x : tensor<6x4xf32> to tensor<6x1xf32>
    %1 = cermet.relu %0 : tensor<6x1xf32>
    %2 = cermet.sum_rows %1 : tensor<6x1xf32> to tensor<1xf32>
    return %2 : tensor<1xf32> })";
  parts = split(chosen);
  ASSERT_TRUE(parts);
  EXPECT_FALSE(parts->kept.graph);
  const char* factor = R"(func.func @f(%x: tensor<6x4xf32>, %m: tensor<6x1xf32>) -> tensor<1xf32> {
    %0 = cermet.reduce_sum %x : tensor<6x4xf32> to tensor<6x1xf32>
    %1 = cermet.mul %0, %m : tensor<6x1xf32>
    %2 = cermet.sum_rows %1 : tensor<6x1xf32> to tensor<1xf32>
    return %2 : tensor<1xf32> })";
  parts = split(factor);
  ASSERT_TRUE(parts && parts->kept.graph);
  std::vector<Array> kept = run(*parts->kept.graph, {Array{{kCount, 1}, {0, 0.5, -1, 0, 0, 2}}}, true);
  EXPECT_EQ(kept[0].data, (std::vector<double>{0, 1, 1, 0, 0, 1}));
}

TEST_F(RowPartsTest, WhatCountsRowsIsKnownBeforeThem) {
  const char* numbered = R"(func.func @f(%x: tensor<6x4xf32>, %w: tensor<1xf32>) -> tensor<1xf32> {
    %0 = cermet.reduce_sum %x : tensor<6x4xf32> to tensor<6x1xf32>
    %1 = cermet.iota 0 : tensor<6x1xf32>
    %2 = cermet.broadcast %w : tensor<1xf32> to tensor<6x1xf32>
    %3 = cermet.mul %1, %2 : tensor<6x1xf32>
    %4 = cermet.mul %0, %3 : tensor<6x1xf32>
    %5 = cermet.sum_rows %4 : tensor<6x1xf32> to tensor<1xf32>
    return %5 : tensor<1xf32> })";
  std::optional<RowParts> parts = split(numbered);
  ASSERT_TRUE(parts);
  std::vector<Array> inputs = {random({kCount, kColumns}), random({1})};
  EXPECT_EQ(inPieces(*parts, inputs, 4)[0].data, run(*graph, inputs, true)[0].data);
}

} // namespace
} // namespace cermet::ir
