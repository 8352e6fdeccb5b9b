// What one launch of a LinearCrossEntropy knows: the tensors, how the rows are cut, and where everything lies.
#pragma once
#include "runtime/launch/Array.h"
#include "runtime/launch/LinearCrossEntropy.h"

namespace cermet {

class LinearCrossEntropy::Call {
public:
  explicit Call(const LinearCrossEntropy& loss) : loss_(loss) {}

  // In this order; without memory, as far as it takes to say how much there must be.
  Status bind(const cermet_tensor* tensors, int count);
  Status checkData(const cermet_tensor* tensors) const; // not for a size
  Status checkRows() const;
  Status layOut(void* workspace);
  size_t bytes() const { return static_cast<size_t>(used_) + scratchBytes_; }
  Status launch(void* stream);

private:
  Status tooLarge() const;
  Status notOneDistance(int value) const;
  static bool hasRows(const PlanValue& value) { return value.rank > 0 && value.dims[0].symbolic(); } // those of a piece
  bool isApart(int value, int64_t rows) const;
  std::optional<Array> pieceOf(const Array& whole, const PlanValue& port, int64_t start, int64_t count) const;
  std::vector<int64_t> symbolsOf(const Plan& plan) const;
  char* take(int64_t count, int64_t each);
  void cut();

  static std::vector<cermet_tensor> views(const std::vector<Array>& arrays); // which they point into
  static std::vector<cermet_tensor> views(std::vector<Array>&& arrays) = delete;
  std::vector<Array> inputsOf(const Part& part) const;
  std::vector<Array> rowsInputs(int64_t start, int64_t count) const;
  Array logitsOf(int64_t count) const;
  Array gradientOf(int64_t count) const;
  Array weightSums() const;
  Array biasSums() const;
  // Rows of the hidden state or of its gradient.
  Array rowsOf(int value, int64_t start, int64_t count) const;

  Status run(const Part& part, std::vector<Array> inputs, const std::vector<Array>& outputs);
  Status multiply(const Array& left, const Array& right, const Array& result, bool accumulate = false) const;
  Status clear(const Array& weight) const;
  Status runPiece(int64_t index);
  Status runParts(int64_t pieces);

  const LinearCrossEntropy& loss_;
  std::vector<Array> given_;     // as the caller passes them
  std::vector<int64_t> symbols_; // of the graph
  int64_t rows_ = 0, piece_ = 0, pieces_ = 0;

  uintptr_t workspace_ = 0; // a number: places are computed before there is memory
  int64_t used_ = 0;
  bool fits_ = true;
  bool isSummed_ = false; // the weight's gradient, over pieces, in the workspace
  char *logits_ = nullptr, *gradient_ = nullptr, *weightSum_ = nullptr, *biasSums_ = nullptr, *scratch_ = nullptr;
  size_t scratchBytes_ = 0;
  std::vector<Array> early_;   // results of `before`
  std::vector<Array> numbers_; // of all rows, [rows, 1], as `rows` gives them
  void* stream_ = nullptr;
  bool isTrial_ = false; // parts are asked what they refuse, and nothing is run
};

} // namespace cermet
