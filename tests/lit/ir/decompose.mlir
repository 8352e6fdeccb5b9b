// A fused operation stands for what Hugging Face's code traces, rounding points included.
// RUN: cermet-opt %s -cermet-decompose --mlir-print-local-scope | FileCheck %s

// CHECK-LABEL: @llama
// CHECK-NEXT: %[[X:.*]] = cermet.cast %arg0 : tensor<3x64xbf16> to tensor<3x64xf32>
// CHECK-NEXT: %[[SQUARE:.*]] = cermet.mul %[[X]], %[[X]] : tensor<3x64xf32>
// CHECK-NEXT: %[[SUM:.*]] = cermet.reduce_sum %[[SQUARE]] : tensor<3x64xf32> to tensor<3x1xf32>
// CHECK-NEXT: %[[N:.*]] = cermet.constant 6.400000e+01 : tensor<3x1xf32>
// CHECK-NEXT: %[[MEAN:.*]] = cermet.div %[[SUM]], %[[N]]
// CHECK-NEXT: %[[EPS:.*]] = cermet.constant 1.000000e-05 : tensor<3x1xf32>
// CHECK-NEXT: %[[VARIANCE:.*]] = cermet.add %[[MEAN]], %[[EPS]]
// CHECK-NEXT: %[[R:.*]] = cermet.rsqrt %[[VARIANCE]]
// CHECK-NEXT: %[[ROW:.*]] = cermet.broadcast %[[R]] : tensor<3x1xf32> to tensor<3x64xf32>
// CHECK-NEXT: %[[NORMALISED:.*]] = cermet.mul %[[X]], %[[ROW]]
// CHECK-NEXT: %[[ROUNDED:.*]] = cermet.cast %[[NORMALISED]] : tensor<3x64xf32> to tensor<3x64xbf16>
// CHECK-NEXT: %[[W:.*]] = cermet.broadcast %arg1 : tensor<64xbf16> to tensor<3x64xbf16>
// CHECK-NEXT: %[[RESULT:.*]] = cermet.mul %[[W]], %[[ROUNDED]] : tensor<3x64xbf16>
// CHECK-NEXT: return %[[RESULT]]
func.func @llama(%x: tensor<3x64xbf16>, %w: tensor<64xbf16>) -> tensor<3x64xbf16> {
  %0 = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64, round_before_weight} : tensor<3x64xbf16>, tensor<64xbf16> to tensor<3x64xbf16>
  return %0 : tensor<3x64xbf16>
}

// CHECK-LABEL: @gemma
// CHECK: %[[SUM:.*]] = cermet.add %arg0, %arg1 : tensor<3x64xbf16>
// CHECK: %[[ROW:.*]] = cermet.broadcast %{{.*}} : tensor<3x1xf32> to tensor<3x64xf32>
// CHECK-NEXT: %[[NORMALISED:.*]] = cermet.mul %{{.*}}, %[[ROW]] : tensor<3x64xf32>
// CHECK-NEXT: %[[W:.*]] = cermet.cast %arg2 : tensor<64xbf16> to tensor<64xf32>
// CHECK-NEXT: %[[ONE:.*]] = cermet.constant 1.000000e+00 : tensor<64xf32>
// CHECK-NEXT: %[[SHIFTED:.*]] = cermet.add %[[W]], %[[ONE]]
// CHECK-NEXT: %[[COLUMNS:.*]] = cermet.broadcast %[[SHIFTED]] : tensor<64xf32> to tensor<3x64xf32>
// CHECK-NEXT: %[[PRODUCT:.*]] = cermet.mul %[[COLUMNS]], %[[NORMALISED]] : tensor<3x64xf32>
// CHECK-NEXT: %[[RESULT:.*]] = cermet.cast %[[PRODUCT]] : tensor<3x64xf32> to tensor<3x64xbf16>
// CHECK-NEXT: return %[[RESULT]], %[[SUM]]
func.func @gemma(%x: tensor<3x64xbf16>, %r: tensor<3x64xbf16>, %w: tensor<64xbf16>) -> (tensor<3x64xbf16>, tensor<3x64xbf16>) {
  %0, %1 = cermet.add_rms_norm %x, %r, %w {eps = 1.0e-6 : f64, weight_offset = 1.0 : f64} : tensor<3x64xbf16>, tensor<3x64xbf16>, tensor<64xbf16> to tensor<3x64xbf16>, tensor<3x64xbf16>
  return %0, %1 : tensor<3x64xbf16>, tensor<3x64xbf16>
}

// Under autocast the weight is f32: the product is too.
// CHECK-LABEL: @mixed
// CHECK: %[[ROUNDED:.*]] = cermet.cast %{{.*}} : tensor<3x64xf32> to tensor<3x64xbf16>
// CHECK-NEXT: %[[W:.*]] = cermet.broadcast %arg1 : tensor<64xf32> to tensor<3x64xf32>
// CHECK-NEXT: %[[WIDE:.*]] = cermet.cast %[[ROUNDED]] : tensor<3x64xbf16> to tensor<3x64xf32>
// CHECK-NEXT: cermet.mul %[[W]], %[[WIDE]] : tensor<3x64xf32>
func.func @mixed(%x: tensor<3x64xbf16>, %w: tensor<64xf32>) -> tensor<3x64xf32> {
  %0 = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64, round_before_weight} : tensor<3x64xbf16>, tensor<64xf32> to tensor<3x64xf32>
  return %0 : tensor<3x64xf32>
}

// CHECK-LABEL: @glu
// CHECK-NEXT: %[[A:.*]] = cermet.silu %arg0 : tensor<3x64xbf16>
// CHECK-NEXT: %[[R:.*]] = cermet.mul %[[A]], %arg1 : tensor<3x64xbf16>
// CHECK-NEXT: return %[[R]]
func.func @glu(%gate: tensor<3x64xbf16>, %up: tensor<3x64xbf16>) -> tensor<3x64xbf16> {
  %0 = cermet.glu %gate, %up : tensor<3x64xbf16>
  return %0 : tensor<3x64xbf16>
}

// CHECK-LABEL: @geglu
// CHECK-NEXT: cermet.gelu %arg0 : tensor<3x64xbf16>
// CHECK-NEXT: cermet.mul %{{.*}}, %arg1
// CHECK-NEXT: cermet.gelu_tanh %arg0 : tensor<3x64xbf16>
// CHECK-NEXT: cermet.mul %{{.*}}, %arg1
func.func @geglu(%gate: tensor<3x64xbf16>, %up: tensor<3x64xbf16>) -> (tensor<3x64xbf16>, tensor<3x64xbf16>) {
  %0 = cermet.glu %gate, %up {activation = "gelu"} : tensor<3x64xbf16>
  %1 = cermet.glu %gate, %up {activation = "gelu_tanh"} : tensor<3x64xbf16>
  return %0, %1 : tensor<3x64xbf16>, tensor<3x64xbf16>
}

// CHECK-LABEL: @packed
// CHECK-NEXT: %[[GATE:.*]] = cermet.slice %arg0 [0, 0] : tensor<3x64xbf16> to tensor<3x32xbf16>
// CHECK-NEXT: %[[UP:.*]] = cermet.slice %arg0 [0, 32] : tensor<3x64xbf16> to tensor<3x32xbf16>
// CHECK-NEXT: %[[A:.*]] = cermet.silu %[[GATE]] : tensor<3x32xbf16>
// CHECK-NEXT: %[[R:.*]] = cermet.mul %[[A]], %[[UP]] : tensor<3x32xbf16>
// CHECK-NEXT: return %[[R]]
func.func @packed(%x: tensor<3x64xbf16>) -> tensor<3x32xbf16> {
  %0 = cermet.packed_glu %x : tensor<3x64xbf16> to tensor<3x32xbf16>
  return %0 : tensor<3x32xbf16>
}

// CHECK-LABEL: @packed_up_first
// CHECK-NEXT: %[[UP:.*]] = cermet.slice %arg0 [0] : tensor<64xf32> to tensor<32xf32>
// CHECK-NEXT: %[[GATE:.*]] = cermet.slice %arg0 [32] : tensor<64xf32> to tensor<32xf32>
// CHECK-NEXT: %[[A:.*]] = cermet.gelu %[[GATE]]
// CHECK-NEXT: %[[R:.*]] = cermet.mul %[[A]], %[[UP]]
// CHECK-NEXT: return %[[R]]
func.func @packed_up_first(%x: tensor<64xf32>) -> tensor<32xf32> {
  %0 = cermet.packed_glu %x {activation = "gelu", up_first} : tensor<64xf32> to tensor<32xf32>
  return %0 : tensor<32xf32>
}
