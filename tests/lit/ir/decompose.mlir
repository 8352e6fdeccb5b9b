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

// A loss of a linear layer: the product rounds to hidden's type, all behind it is f32.
// CHECK-LABEL: @linear_cross_entropy(
// CHECK-NEXT: %[[V0:.*]] = cermet.matmul %arg0, %arg1 {transpose_rhs} : tensor<3x8xbf16>, tensor<5x8xbf16> to tensor<3x5xbf16>
// CHECK-NEXT: %[[V1:.*]] = cermet.cast %[[V0]] : tensor<3x5xbf16> to tensor<3x5xf32>
// CHECK-NEXT: %[[V2:.*]] = cermet.cast %arg2 : tensor<3xi32> to tensor<3xi64>
// CHECK-NEXT: %[[V3:.*]] = cermet.reshape %[[V2]] : tensor<3xi64> to tensor<3x1xi64>
// CHECK-NEXT: %[[V4:.*]] = cermet.constant -1.000000e+02 : tensor<3x1xi64>
// CHECK-NEXT: %[[V5:.*]] = cermet.compare "ne", %[[V3]], %[[V4]] : tensor<3x1xi64> to tensor<3x1xi1>
// CHECK-NEXT: %[[V6:.*]] = cermet.reduce_max %[[V1]] : tensor<3x5xf32> to tensor<3x1xf32>
// CHECK-NEXT: %[[V7:.*]] = cermet.broadcast %[[V6]] : tensor<3x1xf32> to tensor<3x5xf32>
// CHECK-NEXT: %[[V8:.*]] = cermet.sub %[[V1]], %[[V7]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V9:.*]] = cermet.exp %[[V8]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V10:.*]] = cermet.reduce_sum %[[V9]] : tensor<3x5xf32> to tensor<3x1xf32>
// CHECK-NEXT: %[[V11:.*]] = cermet.log %[[V10]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V12:.*]] = cermet.broadcast %[[V11]] : tensor<3x1xf32> to tensor<3x5xf32>
// CHECK-NEXT: %[[V13:.*]] = cermet.sub %[[V8]], %[[V12]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V14:.*]] = cermet.constant 0.000000e+00 : tensor<3x1xi64>
// CHECK-NEXT: %[[V15:.*]] = cermet.select %[[V5]], %[[V3]], %[[V14]] : tensor<3x1xi1>, tensor<3x1xi64>
// CHECK-NEXT: %[[V16:.*]] = cermet.pick %[[V13]], %[[V15]] : tensor<3x5xf32>, tensor<3x1xi64> to tensor<3x1xf32>
// CHECK-NEXT: %[[V17:.*]] = cermet.neg %[[V16]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V18:.*]] = cermet.constant 0.000000e+00 : tensor<3x1xf32>
// CHECK-NEXT: %[[V19:.*]] = cermet.select %[[V5]], %[[V17]], %[[V18]] : tensor<3x1xi1>, tensor<3x1xf32>
// CHECK-NEXT: %[[V20:.*]] = cermet.sum_rows %[[V19]] : tensor<3x1xf32> to tensor<1xf32>
// CHECK-NEXT: %[[V21:.*]] = cermet.cast %[[V5]] : tensor<3x1xi1> to tensor<3x1xf32>
// CHECK-NEXT: %[[V22:.*]] = cermet.sum_rows %[[V21]] : tensor<3x1xf32> to tensor<1xf32>
// CHECK-NEXT: %[[V23:.*]] = cermet.div %[[V20]], %[[V22]] : tensor<1xf32>
// CHECK-NEXT: %[[V24:.*]] = cermet.reshape %[[V23]] : tensor<1xf32> to tensor<f32>
// CHECK-NEXT: return %[[V24]] : tensor<f32>
func.func @linear_cross_entropy(%x: tensor<3x8xbf16>, %w: tensor<5x8xbf16>, %l: tensor<3xi32>) -> tensor<f32> {
  %0 = cermet.linear_cross_entropy %x, %w, %l : tensor<3x8xbf16>, tensor<5x8xbf16>, tensor<3xi32> to tensor<f32>
  return %0 : tensor<f32>
}

// With every option, in the order in which they apply.
// CHECK-LABEL: @linear_cross_entropy_of_each_row(
// CHECK-NEXT: %[[V0:.*]] = cermet.matmul %arg0, %arg1 {transpose_rhs} : tensor<3x8xbf16>, tensor<5x8xbf16> to tensor<3x5xbf16>
// CHECK-NEXT: %[[V1:.*]] = cermet.cast %[[V0]] : tensor<3x5xbf16> to tensor<3x5xf32>
// CHECK-NEXT: %[[V2:.*]] = cermet.cast %arg3 : tensor<5xbf16> to tensor<5xf32>
// CHECK-NEXT: %[[V3:.*]] = cermet.broadcast %[[V2]] : tensor<5xf32> to tensor<3x5xf32>
// CHECK-NEXT: %[[V4:.*]] = cermet.add %[[V1]], %[[V3]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V5:.*]] = cermet.constant 4.000000e+00 : tensor<3x5xf32>
// CHECK-NEXT: %[[V6:.*]] = cermet.div %[[V4]], %[[V5]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V7:.*]] = cermet.tanh %[[V6]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V8:.*]] = cermet.mul %[[V7]], %[[V5]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V9:.*]] = cermet.reshape %arg2 : tensor<3xi64> to tensor<3x1xi64>
// CHECK-NEXT: %[[V10:.*]] = cermet.constant 2.000000e+00 : tensor<3x1xi64>
// CHECK-NEXT: %[[V11:.*]] = cermet.compare "ne", %[[V9]], %[[V10]] : tensor<3x1xi64> to tensor<3x1xi1>
// CHECK-NEXT: %[[V12:.*]] = cermet.reduce_max %[[V8]] : tensor<3x5xf32> to tensor<3x1xf32>
// CHECK-NEXT: %[[V13:.*]] = cermet.broadcast %[[V12]] : tensor<3x1xf32> to tensor<3x5xf32>
// CHECK-NEXT: %[[V14:.*]] = cermet.sub %[[V8]], %[[V13]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V15:.*]] = cermet.exp %[[V14]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V16:.*]] = cermet.reduce_sum %[[V15]] : tensor<3x5xf32> to tensor<3x1xf32>
// CHECK-NEXT: %[[V17:.*]] = cermet.log %[[V16]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V18:.*]] = cermet.broadcast %[[V17]] : tensor<3x1xf32> to tensor<3x5xf32>
// CHECK-NEXT: %[[V19:.*]] = cermet.sub %[[V14]], %[[V18]] : tensor<3x5xf32>
// CHECK-NEXT: %[[V20:.*]] = cermet.constant 0.000000e+00 : tensor<3x1xi64>
// CHECK-NEXT: %[[V21:.*]] = cermet.select %[[V11]], %[[V9]], %[[V20]] : tensor<3x1xi1>, tensor<3x1xi64>
// CHECK-NEXT: %[[V22:.*]] = cermet.pick %[[V19]], %[[V21]] : tensor<3x5xf32>, tensor<3x1xi64> to tensor<3x1xf32>
// CHECK-NEXT: %[[V23:.*]] = cermet.neg %[[V22]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V25:.*]] = cermet.reduce_sum %[[V19]] : tensor<3x5xf32> to tensor<3x1xf32>
// CHECK-NEXT: %[[V24:.*]] = cermet.constant 1.000000e-01 : tensor<3x1xf32>
// CHECK-NEXT: %[[V26:.*]] = cermet.mul %[[V25]], %[[V24]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V27:.*]] = cermet.constant 5.000000e-01 : tensor<3x1xf32>
// CHECK-NEXT: %[[V28:.*]] = cermet.mul %[[V23]], %[[V27]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V29:.*]] = cermet.sub %[[V28]], %[[V26]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V30:.*]] = cermet.add %[[V17]], %[[V12]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V31:.*]] = cermet.constant 2.500000e-01 : tensor<3x1xf32>
// CHECK-NEXT: %[[V32:.*]] = cermet.mul %[[V30]], %[[V30]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V33:.*]] = cermet.mul %[[V32]], %[[V31]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V34:.*]] = cermet.add %[[V29]], %[[V33]] : tensor<3x1xf32>
// CHECK-NEXT: %[[V35:.*]] = cermet.constant 0.000000e+00 : tensor<3x1xf32>
// CHECK-NEXT: %[[V36:.*]] = cermet.select %[[V11]], %[[V34]], %[[V35]] : tensor<3x1xi1>, tensor<3x1xf32>
// CHECK-NEXT: %[[V37:.*]] = cermet.reshape %[[V36]] : tensor<3x1xf32> to tensor<3xf32>
// CHECK-NEXT: return %[[V37]] : tensor<3xf32>
func.func @linear_cross_entropy_of_each_row(%x: tensor<3x8xbf16>, %w: tensor<5x8xbf16>, %l: tensor<3xi64>, %b: tensor<5xbf16>) -> tensor<3xf32> {
  %0 = cermet.linear_cross_entropy %x, %w, %l, %b {reduction = "none", ignore_index = 2 : i64, label_smoothing = 0.5 : f64, softcap = 4.0 : f64, z_loss = 0.25 : f64}
     : tensor<3x8xbf16>, tensor<5x8xbf16>, tensor<3xi64>, tensor<5xbf16> to tensor<3xf32>
  return %0 : tensor<3xf32>
}
