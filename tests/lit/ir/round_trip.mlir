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
    // CHECK: cermet.neg %{{.*}} : tensor<?x64xf32, #cermet.symbols<["r0"]>>
    %neg = cermet.neg %div : !wide
    // CHECK: cermet.exp
    %exp = cermet.exp %neg : !wide
    // CHECK: cermet.rsqrt
    %rsqrt = cermet.rsqrt %exp : !wide
    // CHECK: cermet.sigmoid
    %sigmoid = cermet.sigmoid %rsqrt : !wide
    // CHECK: cermet.silu
    %silu = cermet.silu %sigmoid : !wide
    // CHECK: cermet.cast %{{.*}} : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
    %cast = cermet.cast %silu : !wide to !t
    return %cast : !t
  }

  // CHECK-LABEL: @shapes
  func.func @shapes(%x: !wide, %w: tensor<64xf32>) -> (!row, tensor<64xf32>, tensor<8x8xf32>, !wide) {
    // CHECK: cermet.constant 1.000000e-05 : tensor<?x1xf32, #cermet.symbols<["r0"]>>
    %constant = cermet.constant 1.0e-5 : !row
    // CHECK: cermet.reduce_sum %arg0 : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<?x1xf32, #cermet.symbols<["r0"]>>
    %reduced = cermet.reduce_sum %x : !wide to !row
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
    return %norm, %both, %sum, %glu : !t, !t, !t, !t
  }
}
