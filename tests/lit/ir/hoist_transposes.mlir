// Transposes of what is computed become transposes of what is read.
// RUN: cermet-opt %s -cermet-hoist-transposes | FileCheck %s

!x = tensor<2x3x5x8xf32>
!r = tensor<2x3x5x1xf32>
!y = tensor<2x5x3x8xf32>

// CHECK-LABEL: func.func @norm(
// CHECK: %[[X:.*]] = cermet.transpose %arg0 [0, 2, 1, 3]
// CHECK-NOT: transpose
// CHECK: cermet.reduce_sum {{.*}} : tensor<2x5x3x8xf32> to tensor<2x5x3x1xf32>
// CHECK: cermet.broadcast %arg1 : tensor<8xf32> to tensor<2x5x3x8xf32>
// CHECK: return %{{.*}} : tensor<2x5x3x8xf32>
func.func @norm(%x: !x, %w: tensor<8xf32>) -> !y {
  %square = cermet.mul %x, %x : !x
  %sum = cermet.reduce_sum %square : !x to !r
  %scale = cermet.broadcast %sum : !r to !x
  %scaled = cermet.mul %x, %scale : !x
  %weight = cermet.broadcast %w : tensor<8xf32> to !x
  %result = cermet.mul %scaled, %weight : !x
  %turned = cermet.transpose %result [0, 2, 1, 3] : !x to !y
  %read = cermet.exp %turned : !y
  return %read : !y
}

// What is returned of it too is transposed back, not computed again.
// CHECK-LABEL: func.func @saved(
// CHECK: %[[SUM:.*]] = cermet.reduce_sum {{.*}} : tensor<2x5x3x8xf32> to tensor<2x5x3x1xf32>
// CHECK-NOT: reduce_sum
// CHECK: %[[BACK:.*]] = cermet.transpose %[[SUM]] [0, 2, 1, 3] : tensor<2x5x3x1xf32> to tensor<2x3x5x1xf32>
// CHECK-NOT: reduce_sum
// CHECK: return %{{.*}}, %[[BACK]]
func.func @saved(%x: !x) -> (!y, !r) {
  %sum = cermet.reduce_sum %x : !x to !r
  %scale = cermet.broadcast %sum : !r to !x
  %scaled = cermet.mul %x, %scale : !x
  %turned = cermet.transpose %scaled [0, 2, 1, 3] : !x to !y
  %read = cermet.exp %turned : !y
  return %read, %sum : !y, !r
}

// Nothing computes with it: it stays, a view.
// CHECK-LABEL: func.func @end(
// CHECK: %[[E:.*]] = cermet.exp %arg0 : tensor<2x3x5x8xf32>
// CHECK: cermet.transpose %[[E]] [0, 2, 1, 3]
func.func @end(%x: !x) -> !y {
  %e = cermet.exp %x : !x
  %turned = cermet.transpose %e [0, 2, 1, 3] : !x to !y
  return %turned : !y
}

// Random numbers are those of their rows: it stays.
// CHECK-LABEL: func.func @random(
// CHECK: cermet.random
// CHECK: cermet.mul
// CHECK: cermet.transpose
func.func @random(%x: tensor<2x3x4xf32>, %s: tensor<i64>) -> tensor<3x2x4xf32> {
  %n = cermet.random %s : tensor<i64> to tensor<2x3x4xi64>
  %f = cermet.cast %n : tensor<2x3x4xi64> to tensor<2x3x4xf32>
  %y = cermet.mul %x, %f : tensor<2x3x4xf32>
  %turned = cermet.transpose %y [1, 0, 2] : tensor<2x3x4xf32> to tensor<3x2x4xf32>
  %read = cermet.exp %turned : tensor<3x2x4xf32>
  return %read : tensor<3x2x4xf32>
}

// The columns move: it stays.
// CHECK-LABEL: func.func @columns(
// CHECK: cermet.exp
// CHECK: cermet.transpose
func.func @columns(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  %e = cermet.exp %x : tensor<4x8xf32>
  %turned = cermet.transpose %e [1, 0] : tensor<4x8xf32> to tensor<8x4xf32>
  %read = cermet.neg %turned : tensor<8x4xf32>
  return %read : tensor<8x4xf32>
}
