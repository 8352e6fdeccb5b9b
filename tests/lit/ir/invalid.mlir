// What verifiers say, in cermet-opt as in a parsed graph (tests/unit/ir/text/TextTest.cpp has the rest).
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

// -----

func.func @compared(%x: tensor<8xf32>) -> tensor<4xi1> {
  // expected-error @+1 {{'cermet.compare' op result has shape [4], expected [8] (lhs's)}}
  %0 = cermet.compare "lt", %x, %x : tensor<8xf32> to tensor<4xi1>
  return %0 : tensor<4xi1>
}

// -----

func.func @compared_types(%x: tensor<8xf32>, %y: tensor<8xbf16>) -> tensor<8xi1> {
  // expected-error @+1 {{'cermet.compare' op failed to verify that all of {lhs, rhs} have same type}}
  %0 = "cermet.compare"(%x, %y) {predicate = "lt"} : (tensor<8xf32>, tensor<8xbf16>) -> tensor<8xi1>
  return %0 : tensor<8xi1>
}

// -----

func.func @condition(%c: tensor<8xf32>, %x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{'cermet.select' op operand #0 must be ranked tensor of 1-bit signless integer values, but got 'tensor<8xf32>'}}
  %0 = cermet.select %c, %x, %x : tensor<8xf32>, tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

func.func @transposed(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
  // expected-error @+1 {{'cermet.transpose' op permutation is [1, 1], expected each of the operand's 2 dimensions once, counted from 0}}
  %0 = cermet.transpose %x [1, 1] : tensor<2x3xf32> to tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

func.func @sliced(%x: tensor<8xf32>) -> tensor<4xbf16> {
  // expected-error @+1 {{'cermet.slice' op result has element type 'bf16', expected 'f32' (operand's)}}
  %0 = cermet.slice %x [0] : tensor<8xf32> to tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// -----

func.func @sliced_rank(%x: tensor<2x8xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'cermet.slice' op result has rank 1, expected 2 (operand's)}}
  %0 = cermet.slice %x [0, 0] : tensor<2x8xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @joined(%x: tensor<2x8xf32>, %y: tensor<8xf32>) -> tensor<3x8xf32> {
  // expected-error @+1 {{'cermet.concat' op operand 1 has shape [8], expected [3, 8] (result's, but for dimension 0)}}
  %0 = cermet.concat %x, %y {dim = 0 : i64} : tensor<2x8xf32>, tensor<8xf32> to tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// -----

func.func @eight_bits(%x: tensor<8xf8E5M2>) -> tensor<8xf8E5M2> {
  // expected-error @+1 {{'cermet.max' op operand #0 must be ranked tensor of 64-bit float or 32-bit float or bfloat16 type or 16-bit float or 64-bit signless integer or 32-bit signless integer or 16-bit signless integer or 8-bit signless integer or 8-bit unsigned integer or 1-bit signless integer values, but got 'tensor<8xf8E5M2>'}}
  %0 = cermet.max %x, %x : tensor<8xf8E5M2>
  return %0 : tensor<8xf8E5M2>
}

// -----

func.func @numbers(%x: tensor<8xf32>, %i: tensor<8xf32>) -> tensor<8x8xf32> {
  // expected-error @+1 {{'cermet.gather' op operand #1 must be ranked tensor of 64-bit signless integer or 32-bit signless integer or 16-bit signless integer or 8-bit signless integer or 8-bit unsigned integer values, but got 'tensor<8xf32>'}}
  %0 = cermet.gather %x, %i : tensor<8xf32>, tensor<8xf32> to tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
