// Every operation is printed as it is read.
// RUN: cermet-opt %s --mlir-print-local-scope | cermet-opt --mlir-print-local-scope | FileCheck %s

!t = tensor<?x64xbf16, #cermet.symbols<["r0"]>>
!wide = tensor<?x64xf32, #cermet.symbols<["r0"]>>
!row = tensor<?x1xf32, #cermet.symbols<["r0"]>>

// CHECK: module attributes {cermet.version = 1 : i64}
module attributes {cermet.version = 1 : i64} {
  // CHECK-LABEL: @elementwise
  // CHECK-SAME: tensor<?x64xf32, #cermet.symbols<["r0"]>> {cermet.strides = array<i64: 128, 1>}
  func.func @elementwise(%x: !wide {cermet.strides = array<i64: 128, 1>}, %y: !wide) -> !t {
    // CHECK: cermet.add %arg0, %arg1 : tensor<?x64xf32, #cermet.symbols<["r0"]>>
    %add = cermet.add %x, %y : !wide
    // CHECK: cermet.sub
    %sub = cermet.sub %add, %y : !wide
    // CHECK: cermet.mul
    %mul = cermet.mul %sub, %y : !wide
    // CHECK: cermet.div
    %div = cermet.div %mul, %y : !wide
    // CHECK: cermet.pow
    %pow = cermet.pow %div, %y : !wide
    // CHECK: cermet.max
    %max = cermet.max %pow, %y : !wide
    // CHECK: cermet.min
    %min = cermet.min %max, %y : !wide
    // CHECK: cermet.neg %{{.*}} : tensor<?x64xf32, #cermet.symbols<["r0"]>>
    %neg = cermet.neg %min : !wide
    // CHECK: cermet.abs
    %abs = cermet.abs %neg : !wide
    // CHECK: cermet.exp
    %exp = cermet.exp %abs : !wide
    // CHECK: cermet.log
    %log = cermet.log %exp : !wide
    // CHECK: cermet.sqrt
    %sqrt = cermet.sqrt %log : !wide
    // CHECK: cermet.rsqrt
    %rsqrt = cermet.rsqrt %sqrt : !wide
    // CHECK: cermet.tanh
    %tanh = cermet.tanh %rsqrt : !wide
    // CHECK: cermet.erf
    %erf = cermet.erf %tanh : !wide
    // CHECK: cermet.relu
    %relu = cermet.relu %erf : !wide
    // CHECK: cermet.sigmoid
    %sigmoid = cermet.sigmoid %relu : !wide
    // CHECK: cermet.softplus
    %softplus = cermet.softplus %sigmoid : !wide
    // CHECK: cermet.gelu %
    %gelu = cermet.gelu %softplus : !wide
    // CHECK: cermet.gelu_tanh
    %gelu_tanh = cermet.gelu_tanh %gelu : !wide
    // CHECK: cermet.silu
    %silu = cermet.silu %gelu_tanh : !wide
    // CHECK: cermet.cast %{{.*}} : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
    %cast = cermet.cast %silu : !wide to !t
    return %cast : !t
  }

  // CHECK-LABEL: @integers
  func.func @integers(%x: tensor<3x4xi32>, %y: tensor<3x4xi32>, %a: tensor<4xui8>, %c: tensor<4xi1>) -> (tensor<3x4xi32>, tensor<4xui8>, tensor<4xi1>) {
    // CHECK: cermet.add %arg0, %arg1 : tensor<3x4xi32>
    %add = cermet.add %x, %y : tensor<3x4xi32>
    // CHECK: cermet.sub
    %sub = cermet.sub %add, %y : tensor<3x4xi32>
    // CHECK: cermet.mul
    %mul = cermet.mul %sub, %y : tensor<3x4xi32>
    // CHECK: cermet.max
    %max = cermet.max %mul, %y : tensor<3x4xi32>
    // CHECK: cermet.neg
    %neg = cermet.neg %max : tensor<3x4xi32>
    // CHECK: cermet.abs
    %abs = cermet.abs %neg : tensor<3x4xi32>
    // CHECK: cermet.add %arg2, %arg2 : tensor<4xui8>
    %bytes = cermet.add %a, %a : tensor<4xui8>
    // CHECK: cermet.compare "lt", %arg2, %{{.*}} : tensor<4xui8> to tensor<4xi1>
    %less = cermet.compare "lt", %a, %bytes : tensor<4xui8> to tensor<4xi1>
    // CHECK: cermet.min %{{.*}}, %arg3 : tensor<4xi1>
    %and = cermet.min %less, %c : tensor<4xi1>
    // CHECK: cermet.max %{{.*}} : tensor<4xi1>
    %or = cermet.max %less, %and : tensor<4xi1>
    return %abs, %bytes, %or : tensor<3x4xi32>, tensor<4xui8>, tensor<4xi1>
  }

  // CHECK-LABEL: @choices
  func.func @choices(%x: !wide, %y: !wide, %c: tensor<?x64xi1, #cermet.symbols<["r0"]>>) -> !wide {
    // CHECK: cermet.compare "eq", %arg0, %arg1 : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<?x64xi1, #cermet.symbols<["r0"]>>
    %eq = cermet.compare "eq", %x, %y : !wide to tensor<?x64xi1, #cermet.symbols<["r0"]>>
    // CHECK: cermet.compare "ne"
    %ne = cermet.compare "ne", %x, %y : !wide to tensor<?x64xi1, #cermet.symbols<["r0"]>>
    // CHECK: cermet.compare "lt"
    %lt = cermet.compare "lt", %x, %y : !wide to tensor<?x64xi1, #cermet.symbols<["r0"]>>
    // CHECK: cermet.compare "le"
    %le = cermet.compare "le", %x, %y : !wide to tensor<?x64xi1, #cermet.symbols<["r0"]>>
    // CHECK: cermet.compare "gt"
    %gt = cermet.compare "gt", %x, %y : !wide to tensor<?x64xi1, #cermet.symbols<["r0"]>>
    // CHECK: cermet.compare "ge"
    %ge = cermet.compare "ge", %x, %y : !wide to tensor<?x64xi1, #cermet.symbols<["r0"]>>
    // CHECK: cermet.select %arg2, %arg0, %arg1 : tensor<?x64xi1, #cermet.symbols<["r0"]>>, tensor<?x64xf32, #cermet.symbols<["r0"]>>
    %select = cermet.select %c, %x, %y : tensor<?x64xi1, #cermet.symbols<["r0"]>>, !wide
    return %select : !wide
  }

  // CHECK-LABEL: @moves
  func.func @moves(%x: tensor<2x3x4xbf16>, %y: tensor<?x6xf32, #cermet.symbols<["r0"]>>, %z: tensor<?x6xf32, #cermet.symbols<["r1"]>>, %n: tensor<f32>,
                   %table: tensor<100x8xbf16>, %tokens: tensor<?x5xi64, #cermet.symbols<["r0"]>>) -> (tensor<4x2x3xbf16>, tensor<f32>) {
    // CHECK: cermet.transpose %arg0 [2, 0, 1] : tensor<2x3x4xbf16> to tensor<4x2x3xbf16>
    %transpose = cermet.transpose %x [2, 0, 1] : tensor<2x3x4xbf16> to tensor<4x2x3xbf16>
    // CHECK: cermet.transpose %arg3 [] : tensor<f32> to tensor<f32>
    %scalar = cermet.transpose %n [] : tensor<f32> to tensor<f32>
    // CHECK: cermet.slice %arg0 [0, 1, 2] : tensor<2x3x4xbf16> to tensor<2x2x1xbf16>
    %slice = cermet.slice %x [0, 1, 2] : tensor<2x3x4xbf16> to tensor<2x2x1xbf16>
    // CHECK: cermet.slice %arg1 [0, 3] : tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<?x3xf32, #cermet.symbols<["r0"]>>
    %columns = cermet.slice %y [0, 3] : tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<?x3xf32, #cermet.symbols<["r0"]>>
    // CHECK: cermet.slice %arg1 [1, 0] : tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<?x6xf32, #cermet.symbols<["r1"]>>
    %rows = cermet.slice %y [1, 0] : tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<?x6xf32, #cermet.symbols<["r1"]>>
    // CHECK: cermet.slice %arg1 [2, 0] : tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<1x6xf32>
    %row = cermet.slice %y [2, 0] : tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<1x6xf32>
    // CHECK: cermet.concat %arg1, %{{.*}}, %arg1 {dim = 1 : i64} : tensor<?x6xf32, #cermet.symbols<["r0"]>>, tensor<?x3xf32, #cermet.symbols<["r0"]>>, tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<?x15xf32, #cermet.symbols<["r0"]>>
    %concat = cermet.concat %y, %columns, %y {dim = 1 : i64} : tensor<?x6xf32, #cermet.symbols<["r0"]>>, tensor<?x3xf32, #cermet.symbols<["r0"]>>, tensor<?x6xf32, #cermet.symbols<["r0"]>> to tensor<?x15xf32, #cermet.symbols<["r0"]>>
    // CHECK: cermet.gather %arg4, %arg5 : tensor<100x8xbf16>, tensor<?x5xi64, #cermet.symbols<["r0"]>> to tensor<?x5x8xbf16, #cermet.symbols<["r0"]>>
    %gather = cermet.gather %table, %tokens : tensor<100x8xbf16>, tensor<?x5xi64, #cermet.symbols<["r0"]>> to tensor<?x5x8xbf16, #cermet.symbols<["r0"]>>
    // CHECK: cermet.embedding_bag %arg4, %[[LIST:.*]], %{{.*}}, %{{.*}} : tensor<100x8xbf16>, tensor<6xi64>, tensor<5xi32> to tensor<5x8xbf16>
    %list = cermet.constant 3.0 : tensor<6xi64>
    %bounds = cermet.constant 2.0 : tensor<5xi32>
    %bag = cermet.embedding_bag %table, %list, %bounds, %bounds : tensor<100x8xbf16>, tensor<6xi64>, tensor<5xi32> to tensor<5x8xbf16>
    // CHECK: cermet.embedding_bag %arg4, %{{.*}}, %{{.*}}, %{{.*}} sums %[[SUMS:.*]] : tensor<100x8xbf16>, tensor<6xi64>, tensor<5xi32> sums tensor<1x8xf32> to tensor<5x8xf32>
    %sums = cermet.constant 3.0 : tensor<1x8xf32>
    %wide_bag = cermet.embedding_bag %table, %list, %bounds, %bounds sums %sums : tensor<100x8xbf16>, tensor<6xi64>, tensor<5xi32> sums tensor<1x8xf32> to tensor<5x8xf32>
    // CHECK: cermet.iota 1 : tensor<?x5xi64, #cermet.symbols<["r0"]>>
    %iota = cermet.iota 1 : tensor<?x5xi64, #cermet.symbols<["r0"]>>
    // CHECK: cermet.random %{{.*}} : tensor<i64> to tensor<?x5xi64, #cermet.symbols<["r0"]>>
    %seed = cermet.constant 7.0 : tensor<i64>
    %random = cermet.random %seed : tensor<i64> to tensor<?x5xi64, #cermet.symbols<["r0"]>>
    return %transpose, %scalar : tensor<4x2x3xbf16>, tensor<f32>
  }

  // CHECK-LABEL: @shapes
  func.func @shapes(%x: !wide, %w: tensor<64xf32>) -> (!row, tensor<64xf32>, tensor<8x8xf32>, !wide) {
    // CHECK: cermet.constant 1.000000e-05 : tensor<?x1xf32, #cermet.symbols<["r0"]>>
    %constant = cermet.constant 1.0e-5 : !row
    // CHECK: cermet.constant 0xFF800000 : tensor<?x1xf32, #cermet.symbols<["r0"]>>
    %lowest = cermet.constant 0xFF800000 : !row
    // CHECK: cermet.constant 2.500000e+00 : tensor<f16>
    %half = cermet.constant 0x4100 : tensor<f16>
    // CHECK: cermet.constant 16777217.0 : tensor<i64>
    %whole = cermet.constant 16777217.0 : tensor<i64>
    // CHECK: cermet.reduce_sum %arg0 : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<?x1xf32, #cermet.symbols<["r0"]>>
    %reduced = cermet.reduce_sum %x : !wide to !row
    // CHECK: cermet.reduce_max %arg0 : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<?x1xf32, #cermet.symbols<["r0"]>>
    %largest = cermet.reduce_max %x : !wide to !row
    // CHECK: cermet.reduce_min
    %smallest = cermet.reduce_min %x : !wide to !row
    // CHECK: cermet.cumsum %arg0 : tensor<?x64xf32, #cermet.symbols<["r0"]>>
    %sums = cermet.cumsum %x : !wide
    // CHECK: cermet.cumsum %{{.*}} {reverse} : tensor<?x64xf32, #cermet.symbols<["r0"]>>
    %turned = cermet.cumsum %sums {reverse} : !wide
    // CHECK: cermet.sum_rows %arg0 : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<64xf32>
    %rows = cermet.sum_rows %x : !wide to tensor<64xf32>
    // CHECK: cermet.reshape %arg1 : tensor<64xf32> to tensor<8x8xf32>
    %reshaped = cermet.reshape %w : tensor<64xf32> to tensor<8x8xf32>
    // CHECK: cermet.broadcast %arg1 : tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
    %broadcast = cermet.broadcast %w : tensor<64xf32> to !wide
    return %reduced, %rows, %reshaped, %broadcast : !row, tensor<64xf32>, tensor<8x8xf32>, !wide
  }

  // CHECK-LABEL: @others
  func.func @others(%x: !t, %w: tensor<32x64xbf16>, %n: i64) -> (tensor<?x32xbf16, #cermet.symbols<["r0"]>>, tensor<64x64xbf16>, !t) {
    // CHECK: cermet.matmul %arg0, %arg1 {transpose_rhs} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<32x64xbf16> to tensor<?x32xbf16, #cermet.symbols<["r0"]>>
    %linear = cermet.matmul %x, %w {transpose_rhs} : !t, tensor<32x64xbf16> to tensor<?x32xbf16, #cermet.symbols<["r0"]>>
    // CHECK: cermet.matmul %arg0, %arg0 {transpose_lhs}
    %outer = cermet.matmul %x, %x {transpose_lhs} : !t, !t to tensor<64x64xbf16>
    // CHECK: cermet.opaque "aten.add_"(%arg0, %arg2) {effect = "write", versions = 1 : i64} : (tensor<?x64xbf16, #cermet.symbols<["r0"]>>, i64) -> tensor<?x64xbf16, #cermet.symbols<["r0"]>>
    %written = cermet.opaque "aten.add_"(%x, %n) {effect = "write", versions = 1 : i64} : (!t, i64) -> !t
    // CHECK: cermet.opaque "aten._log_api_usage_once"() {effect = "effectful"} : () -> ()
    cermet.opaque "aten._log_api_usage_once"() {effect = "effectful"} : () -> ()
    return %linear, %outer, %written : tensor<?x32xbf16, #cermet.symbols<["r0"]>>, tensor<64x64xbf16>, !t
  }

  // CHECK-LABEL: @fused
  func.func @fused(%x: !t, %y: !t, %w: tensor<64xbf16>) -> (!t, !t, !t, !t) {
    // CHECK: cermet.rms_norm %arg0, %arg2 {eps = {{[^,]*}} : f64, round_before_weight} :
    %norm = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64, round_before_weight} : !t, tensor<64xbf16> to !t
    // CHECK: cermet.add_rms_norm %arg0, %arg1, %arg2 {eps = {{[^,]*}} : f64, weight_offset = 1.000000e+00 : f64} :
    %both, %sum = cermet.add_rms_norm %x, %y, %w {eps = 1.0e-6 : f64, weight_offset = 1.0 : f64} : !t, !t, tensor<64xbf16> to !t, !t
    // CHECK: cermet.glu %arg0, %arg1 : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
    %glu = cermet.glu %x, %y : !t
    // CHECK: cermet.glu %arg0, %arg1 {activation = "gelu_tanh"} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
    %gelu = cermet.glu %x, %y {activation = "gelu_tanh"} : !t
    // CHECK: cermet.packed_glu %arg0 : tensor<?x64xbf16, #cermet.symbols<["r0"]>> to tensor<?x32xbf16, #cermet.symbols<["r0"]>>
    %packed = cermet.packed_glu %x : !t to tensor<?x32xbf16, #cermet.symbols<["r0"]>>
    // CHECK: cermet.packed_glu %arg0 {activation = "gelu", up_first} : tensor<?x64xbf16, #cermet.symbols<["r0"]>> to tensor<?x32xbf16, #cermet.symbols<["r0"]>>
    %up_first = cermet.packed_glu %x {activation = "gelu", up_first} : !t to tensor<?x32xbf16, #cermet.symbols<["r0"]>>
    return %norm, %both, %sum, %glu : !t, !t, !t, !t
  }

  // CHECK-LABEL: @linear_cross_entropy
  func.func @linear_cross_entropy(%x: !t, %w: tensor<99x64xbf16>, %l: tensor<?xi64, #cermet.symbols<["r0"]>>, %b: tensor<99xbf16>)
      -> (tensor<f32>, tensor<?xf32, #cermet.symbols<["r0"]>>) {
    // CHECK: cermet.linear_cross_entropy %arg0, %arg1, %arg2 : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<99x64xbf16>, tensor<?xi64, #cermet.symbols<["r0"]>> to tensor<f32>
    %mean = cermet.linear_cross_entropy %x, %w, %l : !t, tensor<99x64xbf16>, tensor<?xi64, #cermet.symbols<["r0"]>> to tensor<f32>
    // CHECK: cermet.linear_cross_entropy %arg0, %arg1, %arg2, %arg3 {ignore_index = 7 : i64, label_smoothing = 1.250000e-01 : f64, reduction = "none", softcap = 3.000000e+01 : f64, z_loss = 5.000000e-01 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<99x64xbf16>, tensor<?xi64, #cermet.symbols<["r0"]>>, tensor<99xbf16> to tensor<?xf32, #cermet.symbols<["r0"]>>
    %each = cermet.linear_cross_entropy %x, %w, %l, %b {reduction = "none", ignore_index = 7 : i64, label_smoothing = 0.125 : f64, softcap = 30.0 : f64, z_loss = 0.5 : f64}
          : !t, tensor<99x64xbf16>, tensor<?xi64, #cermet.symbols<["r0"]>>, tensor<99xbf16> to tensor<?xf32, #cermet.symbols<["r0"]>>
    return %mean, %each : tensor<f32>, tensor<?xf32, #cermet.symbols<["r0"]>>
  }
}
