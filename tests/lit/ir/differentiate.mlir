// The gradients of the fused operations: what is saved, what is read, what is computed.
// RUN: cermet-opt %s -split-input-file -cermet-differentiate -mlir-use-nameloc-as-prefix | FileCheck %s

// One f32 number a row is saved; x is read again.
// CHECK-LABEL: @norm_forward
// CHECK-SAME: -> (tensor<8x64xbf16>, tensor<8x1xf32>)
// CHECK: %[[R:.*]] = cermet.rsqrt
// CHECK: return %{{.*}}, %[[R]]
// CHECK-LABEL: @norm_backward
// CHECK-SAME: (%[[X:.*]]: tensor<8x64xbf16>, %[[W:.*]]: tensor<64xbf16>, %saved0: tensor<8x1xf32>, %grad_0: tensor<8x64xbf16>)
// CHECK-SAME: -> (tensor<8x64xbf16>, tensor<64xbf16>)
// CHECK-NOT: cermet.rsqrt
// The normalised value is recomputed with its rounding.
// CHECK: %[[SCALE:.*]] = cermet.broadcast %saved0
// CHECK: %[[NORMALISED:.*]] = cermet.mul %{{.*}}, %[[SCALE]] : tensor<8x64xf32>
// CHECK: cermet.cast %[[NORMALISED]] : tensor<8x64xf32> to tensor<8x64xbf16>
// CHECK-COUNT-1: cermet.sum_rows
// CHECK-COUNT-1: cermet.reduce_sum
// CHECK-NOT: cermet.reduce_sum
// Each gradient is rounded once.
// CHECK: %[[DX:.*]] = cermet.cast %{{.*}} : tensor<8x64xf32> to tensor<8x64xbf16>
// CHECK-NEXT: %[[DW:.*]] = cermet.cast %{{.*}} : tensor<64xf32> to tensor<64xbf16>
// CHECK-NEXT: return %[[DX]], %[[DW]]
module attributes {cermet.version = 1 : i64} {
  func.func @norm(%x: tensor<8x64xbf16>, %w: tensor<64xbf16>) -> tensor<8x64xbf16> {
    %0 = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64, round_before_weight} : tensor<8x64xbf16>, tensor<64xbf16> to tensor<8x64xbf16>
    return %0 : tensor<8x64xbf16>
  }
}

// -----

// The sum, an output, is read instead of x and the residual, which get one gradient.
// CHECK-LABEL: @add_norm_forward
// CHECK-SAME: -> (tensor<8x64xbf16>, tensor<8x64xbf16>, tensor<8x1xf32>)
// CHECK-LABEL: @add_norm_backward
// CHECK-SAME: (%{{[a-z0-9]*}}: tensor<64xbf16>, %output1: tensor<8x64xbf16>, %saved0: tensor<8x1xf32>, %grad_0: tensor<8x64xbf16>, %grad_1: tensor<8x64xbf16>)
// CHECK: return %{{.*}}, %{{.*}} : tensor<8x64xbf16>, tensor<64xbf16>
module attributes {cermet.version = 1 : i64} {
  func.func @add_norm(%x: tensor<8x64xbf16>, %r: tensor<8x64xbf16>, %w: tensor<64xbf16>) -> (tensor<8x64xbf16>, tensor<8x64xbf16>) {
    %0, %1 = cermet.add_rms_norm %x, %r, %w {eps = 1.0e-5 : f64, round_before_weight} : tensor<8x64xbf16>, tensor<8x64xbf16>, tensor<64xbf16> to tensor<8x64xbf16>, tensor<8x64xbf16>
    return %0, %1 : tensor<8x64xbf16>, tensor<8x64xbf16>
  }
}

// -----

// Nothing is saved, the forward stays fused, and the activation that `up`'s gradient reads is the rounded one.
// CHECK-LABEL: @mlp_forward
// CHECK-NEXT: cermet.glu
// CHECK-LABEL: @mlp_backward
// CHECK-SAME: (%[[GATE:.*]]: tensor<8x64xbf16>, %[[UP:.*]]: tensor<8x64xbf16>, %grad_0: tensor<8x64xbf16>)
// CHECK: %[[A:.*]] = cermet.silu %[[GATE]] : tensor<8x64xbf16>
// CHECK: cermet.cast %[[A]] : tensor<8x64xbf16> to tensor<8x64xf32>
// CHECK: cermet.sigmoid %{{.*}} : tensor<8x64xf32>
module attributes {cermet.version = 1 : i64} {
  func.func @mlp(%gate: tensor<8x64xbf16>, %up: tensor<8x64xbf16>) -> tensor<8x64xbf16> {
    %0 = cermet.glu %gate, %up : tensor<8x64xbf16>
    return %0 : tensor<8x64xbf16>
  }
}

// -----

// The two halves' gradients are joined, not added to zeros.
// CHECK-LABEL: @packed_backward
// CHECK-SAME: (%[[X:.*]]: tensor<8x64xbf16>, %grad_0: tensor<8x32xbf16>) -> tensor<8x64xbf16>
// CHECK: %[[GATE:.*]] = cermet.cast %{{.*}} : tensor<8x32xf32> to tensor<8x32xbf16>
// CHECK-NEXT: %[[UP:.*]] = cermet.cast %{{.*}} : tensor<8x32xf32> to tensor<8x32xbf16>
// CHECK-NEXT: %[[D:.*]] = cermet.concat %[[GATE]], %[[UP]] {dim = 1 : i64} : tensor<8x32xbf16>, tensor<8x32xbf16> to tensor<8x64xbf16>
// CHECK-NEXT: return %[[D]]
module attributes {cermet.version = 1 : i64} {
  func.func @packed(%x: tensor<8x64xbf16>) -> tensor<8x32xbf16> {
    %0 = cermet.packed_glu %x {activation = "gelu"} : tensor<8x64xbf16> to tensor<8x32xbf16>
    return %0 : tensor<8x32xbf16>
  }
}

// -----

// Repeated heads: what repeats between kept dimensions is brought innermost and summed.
// CHECK-LABEL: @repeat_backward
// CHECK: %[[G:.*]] = cermet.cast %grad_0
// CHECK: %[[T:.*]] = cermet.transpose %{{.*}} [0, 2, 3, 1] : tensor<2x3x?x8xf32, #cermet.symbols<["s"]>> to tensor<2x?x8x3xf32, #cermet.symbols<["s"]>>
// CHECK-NEXT: %[[S:.*]] = cermet.reduce_sum %[[T]] : tensor<2x?x8x3xf32, #cermet.symbols<["s"]>> to tensor<2x?x8x1xf32, #cermet.symbols<["s"]>>
// CHECK-NEXT: cermet.reshape %[[S]] : tensor<2x?x8x1xf32, #cermet.symbols<["s"]>> to tensor<2x1x?x8xf32, #cermet.symbols<["s"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @repeat(%x: tensor<2x1x?x8xbf16, #cermet.symbols<["s"]>>) -> tensor<2x3x?x8xbf16, #cermet.symbols<["s"]>> {
    %0 = cermet.broadcast %x : tensor<2x1x?x8xbf16, #cermet.symbols<["s"]>> to tensor<2x3x?x8xbf16, #cermet.symbols<["s"]>>
    return %0 : tensor<2x3x?x8xbf16, #cermet.symbols<["s"]>>
  }
}

// -----

// A table's gradient: a matrix product with the rows that were read, each 1 where it was read.
// CHECK-LABEL: @embedding_backward
// CHECK-SAME: (%[[I:.*]]: tensor<2x5xi64>, %grad_0: tensor<2x5x8xbf16>) -> tensor<100x8xbf16>
// CHECK: %[[N:.*]] = cermet.iota 2 : tensor<2x5x100xi64>
// CHECK: cermet.compare "eq", %{{.*}}, %[[N]] : tensor<2x5x100xi64> to tensor<2x5x100xi1>
// CHECK: cermet.matmul %{{.*}}, %{{.*}} {transpose_lhs} : tensor<2x5x100xf32>, tensor<2x5x8xf32> to tensor<100x8xf32>
module attributes {cermet.version = 1 : i64} {
  func.func @embedding(%table: tensor<100x8xbf16>, %i: tensor<2x5xi64>) -> tensor<2x5x8xbf16> {
    %0 = cermet.gather %table, %i : tensor<100x8xbf16>, tensor<2x5xi64> to tensor<2x5x8xbf16>
    return %0 : tensor<2x5x8xbf16>
  }
}

// -----

// A quantised value's gradient has its type and is cast, as any other's.
// CHECK-LABEL: @quantised_backward
// CHECK-SAME: (%grad_0: tensor<4x8xf8E4M3FN>, %grad_1: tensor<4x8xf32>) -> (tensor<4x8xbf16>, tensor<4x8xf8E5M2>)
// CHECK: %[[X:.*]] = cermet.cast %grad_0 : tensor<4x8xf8E4M3FN> to tensor<4x8xbf16>
// CHECK: %[[W:.*]] = cermet.cast %grad_1 : tensor<4x8xf32> to tensor<4x8xf8E5M2>
// CHECK: return %[[X]], %[[W]]
module attributes {cermet.version = 1 : i64} {
  func.func @quantised(%x: tensor<4x8xbf16>, %w: tensor<4x8xf8E5M2>) -> (tensor<4x8xf8E4M3FN>, tensor<4x8xf32>) {
    %0 = cermet.cast %x : tensor<4x8xbf16> to tensor<4x8xf8E4M3FN>
    %1 = cermet.cast %w : tensor<4x8xf8E5M2> to tensor<4x8xf32>
    return %0, %1 : tensor<4x8xf8E4M3FN>, tensor<4x8xf32>
  }
}
