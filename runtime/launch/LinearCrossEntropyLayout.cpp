// How the rows of a launch of a LinearCrossEntropy are cut, where everything lies, and the tensors that its parts get.
#include "runtime/launch/LinearCrossEntropyCall.h"
#include <algorithm>

namespace cermet {

constexpr int64_t kTile = 128; // rows that a product takes at once: pieces are whole numbers of them

static int64_t alignUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

static int64_t ceilDivide(int64_t value, int64_t by) {
  return value / by + (value % by != 0);
}

//===--- The workspace -----------------------------------------------------------------------------------------------//

char* LinearCrossEntropy::Call::take(int64_t count, int64_t each) {
  int64_t bytes = 0, next = 0;
  fits_ = fits_ && !__builtin_mul_overflow(count, each, &bytes) && !__builtin_add_overflow(used_, bytes, &next) &&
          next <= INT64_MAX - int64_t(kWorkspaceAlignment);
  char* place = reinterpret_cast<char*>(workspace_ + static_cast<uintptr_t>(used_));
  if (fits_)
    used_ = alignUp(next, kWorkspaceAlignment);
  return place;
}

// Pieces of nearly equal size, as many as the budget asks for; one where the sum in f32 that several need is as large
// as what they save.
void LinearCrossEntropy::Call::cut() {
  const PlanValue& hidden = loss_.signature_.values[loss_.hidden_];
  const bool isTwice = loss_.isDifferentiated_ && !loss_.inPlace_;
  const int64_t bytes = loss_.leading_ * elementBytes(hidden.dtype) * (isTwice ? 2 : 1);
  int64_t most = int64_t(std::min<uint64_t>(loss_.budget_ / uint64_t(bytes), INT64_MAX));
  if (most > 2 * kTile)
    most -= most % kTile;
  const double summed = loss_.roundedWeight_.run ? 4.0 * double(loss_.columns_) * double(loss_.width_) : 0;
  pieces_ = rows_ == 0 ? 0 : 1;
  piece_ = rows_;
  if (rows_ <= most || double(rows_ - most) * double(bytes) <= summed)
    return;
  pieces_ = ceilDivide(rows_, most);
  piece_ = ceilDivide(rows_, pieces_);
  if (most > kTile)
    piece_ = std::min(most, alignUp(piece_, kTile));
  pieces_ = ceilDivide(rows_, piece_);
}

Status LinearCrossEntropy::Call::layOut(void* workspace) {
  workspace_ = reinterpret_cast<uintptr_t>(workspace);
  used_ = 0;
  cut();
  const PlanValue& hidden = loss_.signature_.values[loss_.hidden_];
  const int bytes = elementBytes(hidden.dtype);
  logits_ = take(piece_, loss_.leading_ * bytes);
  gradient_ = loss_.inPlace_ || !loss_.isDifferentiated_ ? logits_ : take(piece_, loss_.leading_ * bytes);
  isSummed_ = loss_.roundedWeight_.run && pieces_ > 1;
  weightSum_ = take(isSummed_ ? loss_.columns_ : 0, loss_.width_ * int64_t(sizeof(float)));
  biasSums_ = take(loss_.toBias_ >= 0 ? pieces_ : 0, loss_.columns_ * int64_t(sizeof(float)));
  early_.clear();
  numbers_.clear();
  if (loss_.before_.run) {
    const Plan& plan = *loss_.before_.plan;
    const std::vector<int64_t> symbols = symbolsOf(plan);
    for (int output = 0; output < plan.outputs; ++output) {
      Array made = dense(plan.values[plan.inputs + output], symbols, nullptr);
      const int64_t count = std::accumulate(made.sizes, made.sizes + made.rank, int64_t(1), std::multiplies<int64_t>());
      made.data = take(count, elementBytes(made.dtype));
      early_.push_back(made);
    }
  }
  const Plan& plan = *loss_.rows_.plan;
  for (int output = 0; output < plan.outputs - (loss_.isDifferentiated_ ? 1 : 0); ++output) {
    const PlanValue& value = plan.values[plan.inputs + output];
    const int passed = loss_.passed_[output];
    if (passed < 0) {
      numbers_.push_back(matrix(take(rows_, elementBytes(value.dtype)), value.dtype, rows_, 1, 1));
    } else if (passed < static_cast<int>(given_.size())) {
      const Array& into = given_[passed];
      numbers_.push_back(matrix(into.data, value.dtype, rows_, 1, *into.rowStride(into.rank)));
    } else { // its place is not known yet, and takes nothing here
      numbers_.push_back(matrix(nullptr, value.dtype, rows_, 1, 1));
    }
  }
  if (!fits_)
    return tooLarge();
  // Parts follow one another on one stream, so all share what they need for themselves.
  scratch_ = take(0, 1);
  scratchBytes_ = 0;
  for (auto& [part, inputs] : {std::pair(&loss_.before_, inputsOf(loss_.before_)),
                               {&loss_.rows_, rowsInputs(0, piece_)},
                               {&loss_.after_, inputsOf(loss_.after_)},
                               {&loss_.roundedWeight_, {weightSums()}},
                               {&loss_.summedGradient_, {gradientOf(piece_)}},
                               {&loss_.summedBias_, {biasSums()}}}) {
    if (!part->run)
      continue;
    size_t needed = 0;
    const std::vector<cermet_tensor> tensors = views(inputs);
    CERMET_RETURN_IF_ERROR(part->run->workspaceSize(tensors.data(), static_cast<int32_t>(tensors.size()), &needed));
    scratchBytes_ = std::max(scratchBytes_, needed);
  }
  return {};
}

//===--- Tensors of parts --------------------------------------------------------------------------------------------//

std::vector<cermet_tensor> LinearCrossEntropy::Call::views(const std::vector<Array>& arrays) {
  std::vector<cermet_tensor> tensors;
  for (const Array& array : arrays)
    tensors.push_back(array.view());
  return tensors;
}

// Of `before` and `after`: whole tensors. What the pieces gave has the sizes there that it has in the graph.
std::vector<Array> LinearCrossEntropy::Call::inputsOf(const Part& part) const {
  std::vector<Array> inputs;
  if (!part.run)
    return inputs;
  const std::vector<int64_t> symbols = symbolsOf(*part.plan);
  for (size_t at = 0; at < part.inputs.size(); ++at) {
    const Origin& origin = part.inputs[at];
    if (origin.from != Origin::Rows) {
      inputs.push_back(origin.from == Origin::Input ? given_[origin.index] : early_[origin.index]);
      continue;
    }
    const Array& numbers = numbers_[origin.index];
    Array& made = inputs.emplace_back(dense(part.plan->values[at], symbols, numbers.data));
    for (int dim = 0; dim < made.rank; ++dim)
      made.strides[dim] *= numbers.strides[0] == 0 ? 1 : numbers.strides[0]; // 0 of fewer than two rows
  }
  return inputs;
}

std::vector<Array> LinearCrossEntropy::Call::rowsInputs(int64_t start, int64_t count) const {
  std::vector<Array> inputs;
  const Part& part = loss_.rows_;
  for (size_t at = 0; at < part.inputs.size(); ++at) {
    const Origin& origin = part.inputs[at];
    const PlanValue& port = part.plan->values[at];
    if (origin.from == Origin::Input && origin.index == loss_.signature_.inputs) {
      inputs.push_back(logitsOf(count));
      continue;
    }
    const Array& whole = origin.from == Origin::Input ? given_[origin.index] : early_[origin.index];
    inputs.push_back(hasRows(port) ? *pieceOf(whole, port, start, count) : whole);
  }
  return inputs;
}

Array LinearCrossEntropy::Call::logitsOf(int64_t count) const {
  return matrix(logits_, loss_.signature_.values[loss_.hidden_].dtype, count, loss_.columns_, loss_.leading_);
}

Array LinearCrossEntropy::Call::gradientOf(int64_t count) const {
  Array made = logitsOf(count);
  made.data = gradient_;
  return made;
}

Array LinearCrossEntropy::Call::weightSums() const {
  return matrix(weightSum_, CERMET_F32, loss_.columns_, loss_.width_, loss_.width_);
}

Array LinearCrossEntropy::Call::biasSums() const {
  return matrix(biasSums_, CERMET_F32, pieces_, loss_.columns_, loss_.columns_);
}

Array LinearCrossEntropy::Call::rowsOf(int value, int64_t start, int64_t count) const {
  const Array& whole = given_[value];
  const int64_t distance = *whole.rowStride(whole.rank - 1);
  return matrix(whole.data + start * distance * elementBytes(whole.dtype), whole.dtype, count, loss_.width_,
                std::max(distance, loss_.width_));
}

} // namespace cermet
