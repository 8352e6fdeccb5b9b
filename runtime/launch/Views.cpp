// Where the views of a plan are in one launch: base, sizes and strides, from those of their sources. Strides are the
// caller's and may be anything, so they are multiplied unsigned: a wrapped product is a number like another.
#include "runtime/abi/ElementType.h"
#include "runtime/launch/Frame.h"
#include <fmt/ranges.h>
#include <span>

namespace cermet {

namespace {

int64_t times(int64_t left, int64_t right) {
  return static_cast<int64_t>(uint64_t(left) * uint64_t(right));
}

// -1 where it does not fit 63 bits.
int64_t elementsOf(std::span<const int64_t> sizes) {
  int64_t elements = 1;
  bool overflows = false;
  for (int64_t size : sizes) {
    if (size == 0)
      return 0;
    overflows |= __builtin_mul_overflow(elements, size, &elements);
  }
  return overflows ? -1 : elements;
}

// Strides that read the elements of a tensor in row-major order under other sizes, with as many elements, of which
// there are some. A run of the tensor's dimensions that are dense among themselves must be a run of the new ones.
bool restride(int oldRank, const int64_t* oldSizes, const int64_t* oldStrides, int rank, const int64_t* sizes,
              int64_t* strides) {
  int dim = rank - 1, inner = oldRank - 1;
  while (inner >= 0) {
    const int64_t unit = oldStrides[inner];
    int64_t run = oldSizes[inner];
    for (--inner; inner >= 0 && (oldSizes[inner] == 1 || oldStrides[inner] == times(run, unit)); --inner)
      run *= oldSizes[inner];
    int64_t covered = 1;
    for (; dim >= 0 && (covered < run || sizes[dim] == 1); --dim) {
      strides[dim] = times(covered, unit);
      covered *= sizes[dim];
    }
    if (covered != run)
      return false;
  }
  for (; dim >= 0; --dim) // a tensor without dimensions
    strides[dim] = 1;
  return true;
}

} // namespace

Status Executable::deriveSlice(int value, View& view, int64_t* strides, const Frame& frame) const {
  const PlanView& described = *plan_->view(value);
  const View& source = frame.views[described.source];
  uint64_t offset = 0;
  for (int dim = 0; dim < plan_->values[value].rank; ++dim) {
    const int64_t start = described.starts[dim];
    if (view.sizes[dim] > source.sizes[dim] - start) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT,
                   "{} is a slice of '{}' from {} in dimension {} with {} elements, which has {} there", place(value),
                   plan_->values[described.source].name, start, dim, view.sizes[dim], source.sizes[dim]);
    strides[dim] = source.strides[dim];
    offset += uint64_t(start) * uint64_t(source.strides[dim]);
  }
  offset *= uint64_t(uses_[value].denseBytes);
  view.base = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(source.base) + offset);
  return {};
}

Status Executable::deriveReshape(int value, const View& view, int64_t* strides, const Frame& frame) const {
  const PlanView& described = *plan_->view(value);
  const View& source = frame.views[described.source];
  const PlanValue &shape = plan_->values[value], &given = plan_->values[described.source];
  const auto sizesOf = [](const PlanValue& of, const View& at) {
    return std::span<const int64_t>(at.sizes, static_cast<size_t>(of.rank));
  };
  const int64_t elements = elementsOf(sizesOf(given, source));
  if (elements < 0 || elements != elementsOf(sizesOf(shape, view))) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT,
                 "{} of size [{}] is a reshape of '{}' of size [{}], which has not as many "
                 "elements",
                 place(value), fmt::join(sizesOf(shape, view), ", "), given.name,
                 fmt::join(sizesOf(given, source), ", "));
  if (elements == 0) {
    std::fill_n(strides, shape.rank, int64_t(1)); // nothing is read
    return {};
  }
  if (restride(given.rank, source.sizes, source.strides, shape.rank, view.sizes, strides)) [[likely]]
    return {};
  const View& root = frame.views[described.root];
  const auto rootRank = static_cast<size_t>(plan_->values[described.root].rank);
  return error(
      CERMET_UNSUPPORTED,
      "{} of size [{}] has strides [{}], with which it cannot be read as '{}' of size [{}]; pass it contiguous",
      place(described.root), fmt::join(std::span(root.sizes, rootRank), ", "),
      fmt::join(std::span(root.strides, rootRank), ", "), shape.name, fmt::join(sizesOf(shape, view), ", "));
}

Status Executable::deriveBroadcast(int value, const View& view, int64_t* strides, const Frame& frame) const {
  const PlanView& described = *plan_->view(value);
  const View& source = frame.views[described.source];
  const int missing = plan_->values[value].rank - plan_->values[described.source].rank;
  std::fill_n(strides, missing, int64_t(0));
  for (int dim = missing; dim < plan_->values[value].rank; ++dim) {
    const int64_t size = source.sizes[dim - missing];
    if (size != view.sizes[dim] && size != 1) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT, "{} has size {} in dimension {}, '{}' has {} there, expected as many or 1",
                   place(value), view.sizes[dim], dim, plan_->values[described.source].name, size);
    strides[dim] = size == view.sizes[dim] ? source.strides[dim - missing] : 0;
  }
  return {};
}

Status Executable::deriveViews(Frame& frame) const {
  const int values = static_cast<int>(plan_->values.size()), firstOwn = plan_->inputs + plan_->outputs;
  for (int value = plan_->firstView(); value < values; ++value) {
    const PlanView& described = *plan_->view(value);
    const PlanValue& shape = plan_->values[value];
    const View& source = frame.views[described.source];
    int64_t* sizes = frame.ownDims[value - firstOwn];
    int64_t* strides = sizes + kMaxRank;
    bool empty = false;
    for (int dim = 0; dim < shape.rank; ++dim) {
      sizes[dim] = sizeOf(shape.dims[dim], frame.symbols);
      empty |= sizes[dim] == 0;
    }
    View& view = frame.views[value] = {source.base, sizes, strides};
    switch (described.kind) {
    case ViewKind::Slice:
      CERMET_RETURN_IF_ERROR(deriveSlice(value, view, strides, frame));
      break;
    case ViewKind::Transpose:
      for (int dim = 0; dim < shape.rank; ++dim)
        strides[dim] = source.strides[described.permutation[dim]];
      break;
    case ViewKind::Reshape:
      CERMET_RETURN_IF_ERROR(deriveReshape(value, view, strides, frame));
      break;
    case ViewKind::Broadcast:
      CERMET_RETURN_IF_ERROR(deriveBroadcast(value, view, strides, frame));
      break;
    }
    if (uses_[value].unitStride && !empty && shape.rank > 0 && strides[shape.rank - 1] != 1) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT,
                   "{} has a stride that gives its view '{}' stride {} in the last dimension, expected 1; copy it to a "
                   "dense one",
                   place(described.root), shape.name, strides[shape.rank - 1]);
  }
  return {};
}

} // namespace cermet
