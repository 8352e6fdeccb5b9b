// What verifiers say, in cermet-opt as in a parsed graph (tests/unit/ir/TextTest.cpp has the rest).
// RUN: cermet-opt %s -split-input-file -verify-diagnostics

func.func @weight(%x: tensor<8x4096xbf16>, %w: tensor<4095xbf16>) -> tensor<8x4096xbf16> {
  // expected-error @+1 {{'cermet.rms_norm' op weight has 4095 elements, expected 4096 (last dimension of x)}}
  %0 = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<8x4096xbf16>, tensor<4095xbf16> to tensor<8x4096xbf16>
  return %0 : tensor<8x4096xbf16>
}

// -----

func.func @residual(%x: tensor<8x64xbf16>, %r: tensor<4x64xbf16>, %w: tensor<64xbf16>) -> tensor<8x64xbf16> {
  // expected-error @+1 {{'cermet.add_rms_norm' op residual has shape [4, 64], expected [8, 64] (x's)}}
  %0, %1 = cermet.add_rms_norm %x, %r, %w {eps = 1.0e-5 : f64} : tensor<8x64xbf16>, tensor<4x64xbf16>, tensor<64xbf16> to tensor<8x64xbf16>, tensor<8x64xbf16>
  return %0 : tensor<8x64xbf16>
}

// -----

func.func @rows(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  // expected-error @+1 {{'cermet.reduce_sum' op result has shape [8, 64], expected [8, 1] (operand's with the last dimension 1)}}
  %0 = cermet.reduce_sum %x : tensor<8x64xf32> to tensor<8x64xf32>
  return %0 : tensor<8x64xf32>
}

// -----

// expected-error @+1 {{#cermet.symbols names 1 dimensions, the tensor type has 2 that are '?'}}
func.func @names(%x: tensor<?x?xf32, #cermet.symbols<["r0"]>>) {
  return
}

// -----

func.func @types(%x: tensor<8xf32>, %y: tensor<8xbf16>) -> tensor<8xf32> {
  // expected-error @+1 {{'cermet.add' op requires the same type for all operands and results}}
  %0 = "cermet.add"(%x, %y) : (tensor<8xf32>, tensor<8xbf16>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

func.func @write(%x: tensor<8xf32>) {
  // expected-error @+1 {{'cermet.opaque' op versions is 1 with effect "pure", expected 0 (only a write makes versions)}}
  %0 = cermet.opaque "aten.add_"(%x) {versions = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
  return
}
