// Reshapes move behind what a kernel computes, where they cancel or are a view of what it stores.
// RUN: cermet-opt %s -cermet-sink-reshapes | FileCheck %s

!a = tensor<?x3x64xbf16, #cermet.symbols<["r0"]>>
!awide = tensor<?x3x64xf32, #cermet.symbols<["r0"]>>
!b = tensor<?x64xbf16, #cermet.symbols<["rows"]>>
!bwide = tensor<?x64xf32, #cermet.symbols<["rows"]>>
!brow = tensor<?x1xf32, #cermet.symbols<["rows"]>>
!bvector = tensor<?xf32, #cermet.symbols<["rows"]>>
!w = tensor<64xbf16>

// Random numbers of rows are those of a view that keeps the columns: what is dropped behind a view of a sum goes back.
// CHECK-LABEL: func.func @random_of_a_view(
// CHECK: cermet.random %arg2 : tensor<i64> to tensor<?x3x64xi64, #cermet.symbols<["r0"]>>
// CHECK-NOT: reshape
// CHECK: return
func.func @random_of_a_view(%x: !a, %r: !a, %s: tensor<i64>, %rows: !b) -> !a {
  %sum = cermet.add %x, %r : !a
  %view = cermet.reshape %sum : !a to !b
  %numbers = cermet.random %s : tensor<i64> to tensor<?x64xi64, #cermet.symbols<["rows"]>>
  %factor = cermet.cast %numbers : tensor<?x64xi64, #cermet.symbols<["rows"]>> to !b
  %product = cermet.mul %view, %factor : !b
  %back = cermet.reshape %product : !b to !a
  return %back : !a
}

// The norm of a view of a sum, which goes back: nothing is reshaped.
// CHECK-LABEL: func.func @norm_of_a_view(
// CHECK-NOT: reshape
// CHECK: return
func.func @norm_of_a_view(%x: !a, %r: !a, %w: !w, %rows: !b) -> (!a, !a) {
  %sum = cermet.add %x, %r : !a
  %view = cermet.reshape %sum : !a to !b
  %wide = cermet.cast %view : !b to !bwide
  %square = cermet.mul %wide, %wide : !bwide
  %total = cermet.reduce_sum %square : !bwide to !brow
  %columns = cermet.constant 64.0 : !brow
  %quotient = cermet.div %total, %columns : !brow
  %mean = cermet.reshape %quotient : !brow to !bvector
  %eps = cermet.constant 1.0e-5 : !bvector
  %variance = cermet.add %mean, %eps : !bvector
  %reciprocal = cermet.rsqrt %variance : !bvector
  %root = cermet.reshape %reciprocal : !bvector to !brow
  %scale = cermet.broadcast %root : !brow to !bwide
  %normalised = cermet.mul %wide, %scale : !bwide
  %rounded = cermet.cast %normalised : !bwide to !b
  %weights = cermet.broadcast %w : !w to !b
  %product = cermet.mul %weights, %rounded : !b
  %back = cermet.reshape %product : !b to !a
  return %back, %sum : !a, !a
}

// What comes from memory is viewed where the rest is.
// CHECK-LABEL: func.func @stored_in_other_rows(
// CHECK: %[[V:.*]] = cermet.reshape %arg1
// CHECK-NEXT: %[[P:.*]] = cermet.mul %{{.*}}, %[[V]]
// CHECK-NEXT: %[[Y:.*]] = cermet.reshape %[[P]]
// CHECK-NEXT: return %[[Y]]
func.func @stored_in_other_rows(%gate: !a, %up: !b) -> !b {
  %act = cermet.silu %gate : !a
  %view = cermet.reshape %act : !a to !b
  %y = cermet.mul %view, %up : !b
  return %y : !b
}

// A view of what comes from memory stays one.
// CHECK-LABEL: func.func @view_of_an_argument(
// CHECK-NEXT: %[[V:.*]] = cermet.reshape %arg0
// CHECK-NEXT: %[[E:.*]] = cermet.exp %[[V]]
func.func @view_of_an_argument(%x: !a) -> !b {
  %view = cermet.reshape %x : !a to !b
  %y = cermet.exp %view : !b
  return %y : !b
}

// Strided memory has no view, two computations of different rows have no rows in common: nothing moves.
// CHECK-LABEL: func.func @strided(
// CHECK: cermet.mul %{{.*}}, %arg1 : tensor<?x64xbf16
func.func @strided(%gate: !a, %up: !b {cermet.strides = array<i64: 128, 1>}) -> !b {
  %act = cermet.silu %gate : !a
  %view = cermet.reshape %act : !a to !b
  %y = cermet.mul %view, %up : !b
  return %y : !b
}

// CHECK-LABEL: func.func @two_computations(
// CHECK: cermet.mul {{.*}} : tensor<?x64xbf16
func.func @two_computations(%gate: !a, %up: !b) -> (!b, !b) {
  %act = cermet.silu %gate : !a
  %view = cermet.reshape %act : !a to !b
  %other = cermet.exp %up : !b
  %y = cermet.mul %view, %other : !b
  return %y, %other : !b, !b
}

// What is computed of stored values element by element, and is read here alone, is computed of views of them.
// CHECK-LABEL: func.func @beside_a_computation(
// CHECK: %[[V:.*]] = cermet.reshape %arg1
// CHECK: %[[E:.*]] = cermet.exp %[[V]] : tensor<?x3x64xbf16
// CHECK: %[[M:.*]] = cermet.mul %{{.*}}, %[[E]] : tensor<?x3x64xbf16
// CHECK: %[[R:.*]] = cermet.reshape %[[M]]
// CHECK: return %[[R]]
func.func @beside_a_computation(%gate: !a, %up: !b) -> !b {
  %act = cermet.silu %gate : !a
  %view = cermet.reshape %act : !a to !b
  %other = cermet.exp %up : !b
  %y = cermet.mul %view, %other : !b
  return %y : !b
}

// So is what is made of a call's result that is contiguous, and no other's.
// CHECK-LABEL: func.func @beside_a_dense_result(
// CHECK: cermet.mul {{.*}} : tensor<?x3x64xbf16
func.func @beside_a_dense_result(%gate: !a, %up: !b) -> !b {
  %made:2 = cermet.opaque "made"(%up) {cermet.dense = array<i64: 1>} : (!b) -> (!b, !b)
  %act = cermet.silu %gate : !a
  %view = cermet.reshape %act : !a to !b
  %y = cermet.mul %view, %made#1 : !b
  return %y : !b
}

// CHECK-LABEL: func.func @beside_another_result(
// CHECK: cermet.mul {{.*}} : tensor<?x64xbf16
func.func @beside_another_result(%gate: !a, %up: !b) -> !b {
  %made:2 = cermet.opaque "made"(%up) {cermet.dense = array<i64: 1>} : (!b) -> (!b, !b)
  %act = cermet.silu %gate : !a
  %view = cermet.reshape %act : !a to !b
  %y = cermet.mul %view, %made#0 : !b
  return %y : !b
}

// What works on an argument element by element is computed on a view of it, where its reshape cannot sink because a label
// lies along the rows. What reads it in its own shape goes with it.
// CHECK-LABEL: func.func @lifted(
// CHECK-NEXT: %[[V:.*]] = cermet.reshape %arg0 : tensor<2x3x64xf32> to tensor<6x64xf32>
// CHECK-NEXT: %[[E:.*]] = cermet.exp %[[V]] : tensor<6x64xf32>
// CHECK-NEXT: %[[L:.*]] = cermet.broadcast %arg1
// CHECK-NEXT: %[[A:.*]] = cermet.add %[[E]], %[[L]] : tensor<6x64xf32>
// CHECK-NEXT: %[[M:.*]] = cermet.mul %[[A]], %[[E]] : tensor<6x64xf32>
// CHECK-NEXT: %[[R:.*]] = cermet.reshape %[[M]]
// CHECK-NEXT: return %[[R]]
func.func @lifted(%x: tensor<2x3x64xf32>, %label: tensor<6x1xf32>) -> tensor<2x3x64xf32> {
  %exp = cermet.exp %x : tensor<2x3x64xf32>
  %view = cermet.reshape %exp : tensor<2x3x64xf32> to tensor<6x64xf32>
  %along = cermet.broadcast %label : tensor<6x1xf32> to tensor<6x64xf32>
  %sum = cermet.add %view, %along : tensor<6x64xf32>
  %back = cermet.reshape %sum : tensor<6x64xf32> to tensor<2x3x64xf32>
  %y = cermet.mul %back, %exp : tensor<2x3x64xf32>
  return %y : tensor<2x3x64xf32>
}

// Its columns may be split, or be several dimensions' before.
// CHECK-LABEL: func.func @lifted_with_other_columns(
// CHECK-NEXT: %[[V:.*]] = cermet.reshape %arg0 : tensor<2x12x4x8xf32> to tensor<2x3x4x32xf32>
// CHECK-NEXT: %[[E:.*]] = cermet.exp %[[V]] : tensor<2x3x4x32xf32>
// CHECK-NEXT: %[[S:.*]] = cermet.reduce_sum %[[E]] : tensor<2x3x4x32xf32>
// CHECK-NEXT: return %[[S]]
func.func @lifted_with_other_columns(%x: tensor<2x12x4x8xf32>) -> tensor<2x3x4x1xf32> {
  %exp = cermet.exp %x : tensor<2x12x4x8xf32>
  %view = cermet.reshape %exp : tensor<2x12x4x8xf32> to tensor<2x3x4x32xf32>
  %y = cermet.reduce_sum %view : tensor<2x3x4x32xf32> to tensor<2x3x4x1xf32>
  return %y : tensor<2x3x4x1xf32>
}

// CHECK-LABEL: func.func @lifted_with_a_part_of_a_dimension(
// CHECK-NEXT: %[[V:.*]] = cermet.reshape %arg0 : tensor<2x12x5x8xf32> to tensor<2x3x160xf32>
// CHECK-NEXT: %[[E:.*]] = cermet.exp %[[V]]
// CHECK-NEXT: %[[S:.*]] = cermet.reduce_sum %[[E]]
// CHECK-NEXT: return %[[S]]
func.func @lifted_with_a_part_of_a_dimension(%x: tensor<2x12x5x8xf32>) -> tensor<2x3x1xf32> {
  %exp = cermet.exp %x : tensor<2x12x5x8xf32>
  %view = cermet.reshape %exp : tensor<2x12x5x8xf32> to tensor<2x3x160xf32>
  %y = cermet.reduce_sum %view : tensor<2x3x160xf32> to tensor<2x3x1xf32>
  return %y : tensor<2x3x1xf32>
}

// Columns of other rows: element by element nothing changes, a reduction stays where it is.
// CHECK-LABEL: func.func @other_columns(
// CHECK-NEXT: %[[E:.*]] = cermet.exp %arg0 : tensor<6x10xf32>
// CHECK-NEXT: %[[N:.*]] = cermet.neg %[[E]] : tensor<6x10xf32>
// CHECK-NEXT: %[[V:.*]] = cermet.reshape %[[N]]
// CHECK-NEXT: %[[S:.*]] = cermet.reduce_sum %[[V]] : tensor<4x15xf32>
// CHECK-NEXT: return %[[S]]
func.func @other_columns(%x: tensor<6x10xf32>) -> tensor<4x1xf32> {
  %exp = cermet.exp %x : tensor<6x10xf32>
  %heads = cermet.reshape %exp : tensor<6x10xf32> to tensor<4x15xf32>
  %neg = cermet.neg %heads : tensor<4x15xf32>
  %y = cermet.reduce_sum %neg : tensor<4x15xf32> to tensor<4x1xf32>
  return %y : tensor<4x1xf32>
}

// A weight's gradient has no rows.
// CHECK-LABEL: func.func @sum_of_rows(
// CHECK-NEXT: %[[E:.*]] = cermet.exp %arg0
// CHECK-NEXT: %[[S:.*]] = cermet.sum_rows %[[E]]
// CHECK-NEXT: return %[[S]]
func.func @sum_of_rows(%x: !awide) -> tensor<64xf32> {
  %exp = cermet.exp %x : !awide
  %view = cermet.reshape %exp : !awide to !bwide
  %y = cermet.sum_rows %view : !bwide to tensor<64xf32>
  return %y : tensor<64xf32>
}
