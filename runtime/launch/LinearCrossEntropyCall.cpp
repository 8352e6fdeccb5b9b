// One launch of a LinearCrossEntropy: the tensors that it is given, and the pieces one after the other.
#include "runtime/launch/LinearCrossEntropyCall.h"
#include "runtime/launch/Callback.h"
#include "runtime/launch/HostProduct.h"
#include <algorithm>
#include <cstring>

namespace cermet {

//===--- What is given -----------------------------------------------------------------------------------------------//

Status LinearCrossEntropy::Call::bind(const cermet_tensor* tensors, int count) {
  const Plan& signature = loss_.signature_;
  symbols_.assign(signature.symbols.size(), -1);
  for (int value = 0; value < count; ++value) {
    CERMET_RETURN_IF_ERROR(checkShape(signature, value, tensors[value], symbols_.data()));
    Array& array = given_.emplace_back(
        Array{static_cast<char*>(tensors[value].data), signature.values[value].dtype, tensors[value].rank, {}, {}});
    std::copy_n(tensors[value].sizes, array.rank, array.sizes);
    std::copy_n(tensors[value].strides, array.rank, array.strides);
  }
  const Array& hidden = given_[loss_.hidden_];
  rows_ = 1;
  for (int dim = 0; dim + 1 < hidden.rank; ++dim)
    if (__builtin_mul_overflow(rows_, hidden.sizes[dim], &rows_))
      return tooLarge();
  return {};
}

Status LinearCrossEntropy::Call::checkRows() const {
  for (int value = 0; value < static_cast<int>(given_.size()); ++value) {
    const Array& array = given_[value];
    const bool isPassed = std::find(loss_.passed_.begin(), loss_.passed_.end(), value) != loss_.passed_.end();
    const bool isHidden = value == loss_.hidden_ || value == loss_.toHidden_;
    const bool isWeight = value == loss_.weight_ || value == loss_.toWeight_;
    if ((isHidden && !isApart(value, rows_)) || (isWeight && !isApart(value, loss_.columns_)) ||
        (isPassed && !array.rowStride(array.rank)))
      return notOneDistance(value);
  }
  const Plan& part = *loss_.rows_.plan;
  for (int at = 0; at < part.inputs; ++at)
    if (const Origin& origin = loss_.rows_.inputs[at];
        origin.from == Origin::Input && origin.index < loss_.signature_.inputs && hasRows(part.values[at]))
      if (!pieceOf(given_[origin.index], part.values[at], 0, rows_))
        return notOneDistance(origin.index);
  return {};
}

Status LinearCrossEntropy::Call::checkData(const cermet_tensor* tensors) const {
  for (int value = 0; value < static_cast<int>(given_.size()); ++value) {
    const bool isFactor =
        value == loss_.hidden_ || value == loss_.weight_ || value == loss_.toHidden_ || value == loss_.toWeight_;
    CERMET_RETURN_IF_ERROR(checkMemory(loss_.signature_, value, tensors[value], isFactor));
  }
  return {};
}

Status LinearCrossEntropy::Call::tooLarge() const {
  return error(CERMET_INVALID_ARGUMENT, "{}: the workspace would have more than 2^63 bytes", loss_.signature_.name);
}

Status LinearCrossEntropy::Call::notOneDistance(int value) const {
  return error(CERMET_UNSUPPORTED, "{} has rows that overlap or do not all lie at one distance; copy it to a dense one",
               placeOf(loss_.signature_, value));
}

// Whether rows of a factor lie at one distance, none over another.
bool LinearCrossEntropy::Call::isApart(int value, int64_t rows) const {
  const Array& array = given_[value];
  const std::optional<int64_t> distance = array.rowStride(array.rank - 1);
  return rows <= 1 || (distance && *distance >= loss_.width_);
}

// Rows [start, start + count) of a tensor for a part that has all their dimensions in one.
std::optional<Array> LinearCrossEntropy::Call::pieceOf(const Array& whole, const PlanValue& port, int64_t start,
                                                       int64_t count) const {
  int leads = whole.rank - (port.rank - 1);
  for (int dim = 1; dim < port.rank && leads < whole.rank; ++dim)
    if (leads < 0 || whole.sizes[leads + dim - 1] != port.dims[dim].size)
      leads = whole.rank; // a number a row, with a dimension of 1 behind
  const std::optional<int64_t> distance = whole.rowStride(leads);
  if (!distance)
    return std::nullopt;
  Array made{whole.data + start * *distance * elementBytes(whole.dtype), whole.dtype, port.rank, {count}, {*distance}};
  for (int dim = 1; dim < port.rank; ++dim) {
    const bool isOwn = leads + dim - 1 < whole.rank;
    made.sizes[dim] = isOwn ? whole.sizes[leads + dim - 1] : 1;
    made.strides[dim] = isOwn ? whole.strides[leads + dim - 1] : 1;
  }
  return made;
}

// What the symbols of a part's plan are: those of the graph, by name.
std::vector<int64_t> LinearCrossEntropy::Call::symbolsOf(const Plan& plan) const {
  std::vector<int64_t> sizes;
  for (const std::string& symbol : plan.symbols) {
    const auto& names = loss_.signature_.symbols;
    const auto found = std::find(names.begin(), names.end(), symbol);
    sizes.push_back(found == names.end() ? 0 : symbols_[found - names.begin()]);
  }
  return sizes;
}

//===--- The launch --------------------------------------------------------------------------------------------------//

Status LinearCrossEntropy::Call::run(const Part& part, std::vector<Array> inputs, const std::vector<Array>& outputs) {
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  const std::vector<cermet_tensor> tensors = views(inputs);
  const auto count = static_cast<int32_t>(tensors.size());
  return isTrial_ ? part.run->check(tensors.data(), count, scratch_, scratchBytes_)
                  : part.run->launch(stream_, tensors.data(), count, scratch_, scratchBytes_);
}

Status LinearCrossEntropy::Call::multiply(const Array& left, const Array& right, const Array& result,
                                          bool accumulate) const {
  if (isTrial_)
    return {};
  const cermet_tensor tensors[] = {left.view(), right.view(), result.view()};
  if (!loss_.product_) {
    hostProduct(loss_.context_->pool(), tensors[0], tensors[1], tensors[2], accumulate);
    return {};
  }
  const char* name = accumulate ? "matmul_accumulate" : "matmul";
  std::string threw;
  const cermet_status status = callBack(loss_.product_, loss_.user_, name, tensors, 2, 1, stream_, threw);
  if (!threw.empty())
    return error(CERMET_INTERNAL, "{}: the callback of the product {} threw: {}", loss_.signature_.name, name, threw);
  return status == CERMET_OK ? Status()
                             : error(status, "{}: the callback of the product {} failed", loss_.signature_.name, name);
}

// A gradient of a weight that no row decides.
Status LinearCrossEntropy::Call::clear(const Array& weight) const {
  if (isTrial_)
    return {};
  const int64_t bytes = elementBytes(weight.dtype), pitch = weight.strides[0] * bytes;
  const bool isDense = weight.strides[0] == loss_.width_;
  for (int64_t row = 0; row < (isDense ? 1 : loss_.columns_); ++row) {
    char* data = weight.data + row * pitch;
    const auto size = static_cast<size_t>((isDense ? loss_.columns_ : 1) * loss_.width_ * bytes);
    if (!loss_.device_)
      std::memset(data, 0, size);
    else
      CERMET_RETURN_IF_ERROR(loss_.device_->driver().check(
          loss_.device_->table().cuMemsetD8Async(static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(data)), 0, size,
                                                 static_cast<CUstream>(stream_)),
          "cuMemsetD8Async"));
  }
  return {};
}

Status LinearCrossEntropy::Call::runPiece(int64_t index) {
  const int64_t start = index * piece_, count = std::min(piece_, rows_ - start);
  const Array weight = given_[loss_.weight_], hidden = rowsOf(loss_.hidden_, start, count);
  const Array logits = logitsOf(count), gradient = gradientOf(count);
  CERMET_RETURN_IF_ERROR(
      multiply(hidden, matrix(weight.data, weight.dtype, loss_.width_, loss_.columns_, 1, weight.strides[0]), logits));
  std::vector<Array> outputs;
  for (const Array& numbers : numbers_)
    outputs.push_back(matrix(numbers.data + start * numbers.strides[0] * elementBytes(numbers.dtype), numbers.dtype,
                             count, 1, numbers.strides[0]));
  if (loss_.isDifferentiated_)
    outputs.push_back(gradient);
  if (Status status = run(loss_.rows_, rowsInputs(start, count), outputs); !status.ok()) {
    if (status.code() == CERMET_OUT_OF_RANGE)
      Executable::countFaultFrom(start);
    return start == 0
               ? status
               : Status(status.code(), fmt::format("{} (of a piece that begins at row {})", status.message(), start));
  }
  if (loss_.toHidden_ >= 0)
    CERMET_RETURN_IF_ERROR(multiply(gradient, weight, rowsOf(loss_.toHidden_, start, count)));
  if (loss_.toWeight_ >= 0)
    CERMET_RETURN_IF_ERROR(multiply(matrix(gradient.data, gradient.dtype, loss_.columns_, count, 1, loss_.leading_),
                                    hidden, isSummed_ ? weightSums() : given_[loss_.toWeight_], index > 0));
  if (loss_.toBias_ < 0)
    return {};
  const PlanValue& sum = loss_.summedGradient_.plan->values[1];
  return run(loss_.summedGradient_, {gradient},
             {{biasSums_ + index * loss_.columns_ * int64_t(sizeof(float)), sum.dtype, 1, {loss_.columns_}, {1}}});
}

Status LinearCrossEntropy::Call::launch(void* stream) {
  stream_ = stream;
  isTrial_ = true; // what a part refuses is refused before another has written
  CERMET_RETURN_IF_ERROR(runParts(std::min<int64_t>(pieces_, 1)));
  isTrial_ = false;
  return runParts(pieces_);
}

Status LinearCrossEntropy::Call::runParts(int64_t pieces) {
  if (loss_.before_.run)
    CERMET_RETURN_IF_ERROR(run(loss_.before_, inputsOf(loss_.before_), early_));
  for (int64_t index = 0; index < pieces; ++index)
    CERMET_RETURN_IF_ERROR(runPiece(index));
  if (loss_.toWeight_ >= 0 && pieces_ == 0)
    CERMET_RETURN_IF_ERROR(clear(given_[loss_.toWeight_]));
  if (isSummed_)
    CERMET_RETURN_IF_ERROR(run(loss_.roundedWeight_, {weightSums()}, {given_[loss_.toWeight_]}));
  if (loss_.toBias_ >= 0)
    CERMET_RETURN_IF_ERROR(run(loss_.summedBias_, {biasSums()}, {given_[loss_.toBias_]}));
  const int outputs = loss_.after_.plan->outputs;
  return run(loss_.after_, inputsOf(loss_.after_),
             {given_.begin() + loss_.signature_.inputs, given_.begin() + loss_.signature_.inputs + outputs});
}

//===--- From outside ------------------------------------------------------------------------------------------------//

Status LinearCrossEntropy::workspaceSize(const cermet_tensor* tensors, int32_t count, size_t* size) const {
  if (count < signature_.inputs)
    return error(CERMET_INVALID_ARGUMENT, "{}: {} tensors given, expected at least the {} inputs", signature_.name,
                 count, signature_.inputs);
  Call call(*this);
  CERMET_RETURN_IF_ERROR(call.bind(tensors, signature_.inputs));
  CERMET_RETURN_IF_ERROR(call.checkRows());
  CERMET_RETURN_IF_ERROR(call.layOut(nullptr));
  *size = call.bytes();
  return {};
}

Status LinearCrossEntropy::launch(void* stream, const cermet_tensor* tensors, int32_t count, void* workspace,
                                  size_t workspaceSize) const {
  if (count != signature_.inputs + signature_.outputs)
    return error(CERMET_INVALID_ARGUMENT,
                 "{}: {} tensors given, expected {} ({} inputs, then {} outputs and gradients)", signature_.name, count,
                 signature_.inputs + signature_.outputs, signature_.inputs, signature_.outputs);
  const Range range(context_->ranges(), RangeKind::Launch, signature_.name);
  Call call(*this);
  CERMET_RETURN_IF_ERROR(call.bind(tensors, count));
  CERMET_RETURN_IF_ERROR(call.checkData(tensors));
  CERMET_RETURN_IF_ERROR(call.checkRows());
  CERMET_RETURN_IF_ERROR(call.layOut(workspace));
  CERMET_RETURN_IF_ERROR(checkWorkspace(signature_.name, workspace, workspaceSize, call.bytes(),
                                        "cermet_linear_cross_entropy_workspace_size"));
  if (!device_)
    return call.launch(stream);
  CERMET_RETURN_IF_ERROR(device_->driver().checkOfThisProcess());
  const ContextBinding binding(device_->table(), device_->context()); // for products and what is cleared
  CERMET_RETURN_IF_ERROR(device_->driver().check(binding.result(), "cuCtxSetCurrent"));
  return call.launch(stream);
}

} // namespace cermet
