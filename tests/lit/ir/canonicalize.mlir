// Folds remove what changes no bit, and nothing that does.
// RUN: cermet-opt %s -canonicalize --mlir-print-local-scope | FileCheck %s

// CHECK-LABEL: @widened_and_back
// CHECK-NEXT: return %arg0
func.func @widened_and_back(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = cermet.cast %x : tensor<4xbf16> to tensor<4xf32>
  %1 = cermet.cast %0 : tensor<4xf32> to tensor<4xbf16>
  return %1 : tensor<4xbf16>
}

// CHECK-LABEL: @widened_twice
// CHECK-NEXT: %[[R:.*]] = cermet.cast %arg0 : tensor<4xf16> to tensor<4xf64>
// CHECK-NEXT: return %[[R]]
func.func @widened_twice(%x: tensor<4xf16>) -> tensor<4xf64> {
  %0 = cermet.cast %x : tensor<4xf16> to tensor<4xf32>
  %1 = cermet.cast %0 : tensor<4xf32> to tensor<4xf64>
  return %1 : tensor<4xf64>
}

// A rounding stays, between any two types that do not contain each other.
// CHECK-LABEL: @rounded
// CHECK-NEXT: cermet.cast %arg0 : tensor<4xf32> to tensor<4xbf16>
// CHECK-NEXT: cermet.cast %{{.*}} : tensor<4xbf16> to tensor<4xf32>
func.func @rounded(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = cermet.cast %x : tensor<4xf32> to tensor<4xbf16>
  %1 = cermet.cast %0 : tensor<4xbf16> to tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: @between_halves
// CHECK-NEXT: cermet.cast %arg0 : tensor<4xbf16> to tensor<4xf16>
// CHECK-NEXT: cermet.cast
func.func @between_halves(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = cermet.cast %x : tensor<4xbf16> to tensor<4xf16>
  %1 = cermet.cast %0 : tensor<4xf16> to tensor<4xbf16>
  return %1 : tensor<4xbf16>
}

// f32 holds integers of 16 bits, not of 32.
// CHECK-LABEL: @integers
// CHECK-NEXT: %[[WIDE:.*]] = cermet.cast %arg1 : tensor<4xi32> to tensor<4xf32>
// CHECK-NEXT: %[[BACK:.*]] = cermet.cast %[[WIDE]]
// CHECK-NEXT: return %arg0, %[[BACK]]
func.func @integers(%x: tensor<4xi16>, %y: tensor<4xi32>) -> (tensor<4xi16>, tensor<4xi32>) {
  %0 = cermet.cast %x : tensor<4xi16> to tensor<4xf32>
  %1 = cermet.cast %0 : tensor<4xf32> to tensor<4xi16>
  %2 = cermet.cast %y : tensor<4xi32> to tensor<4xf32>
  %3 = cermet.cast %2 : tensor<4xf32> to tensor<4xi32>
  return %1, %3 : tensor<4xi16>, tensor<4xi32>
}

// CHECK-LABEL: @shapes
// CHECK-NEXT: %[[B:.*]] = cermet.broadcast %arg0 : tensor<4xf32> to tensor<2x3x4xf32>
// CHECK-NEXT: return %[[B]], %arg0
func.func @shapes(%x: tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<4xf32>) {
  %0 = cermet.broadcast %x : tensor<4xf32> to tensor<3x4xf32>
  %1 = cermet.broadcast %0 : tensor<3x4xf32> to tensor<2x3x4xf32>
  %2 = cermet.reshape %x : tensor<4xf32> to tensor<2x2xf32>
  %3 = cermet.reshape %2 : tensor<2x2xf32> to tensor<4xf32>
  %4 = cermet.broadcast %3 : tensor<4xf32> to tensor<4xf32>
  return %1, %4 : tensor<2x3x4xf32>, tensor<4xf32>
}

// A product of symbols is known where it is made, so that reshape stays one of its own.
// CHECK-LABEL: @merged_rows
// CHECK-NEXT: %[[M:.*]] = cermet.reshape %arg0
// CHECK-NEXT: %[[C:.*]] = cermet.reshape %[[M]]
// CHECK-NEXT: return %[[C]], %arg0
func.func @merged_rows(%x: tensor<4x?xi64, #cermet.symbols<["s"]>>)
    -> (tensor<?x1xi64, #cermet.symbols<["4*s"]>>, tensor<4x?xi64, #cermet.symbols<["s"]>>) {
  %0 = cermet.reshape %x : tensor<4x?xi64, #cermet.symbols<["s"]>> to tensor<?xi64, #cermet.symbols<["4*s"]>>
  %1 = cermet.reshape %0 : tensor<?xi64, #cermet.symbols<["4*s"]>> to tensor<?x1xi64, #cermet.symbols<["4*s"]>>
  %2 = cermet.reshape %0 : tensor<?xi64, #cermet.symbols<["4*s"]>> to tensor<4x?xi64, #cermet.symbols<["s"]>>
  return %1, %2 : tensor<?x1xi64, #cermet.symbols<["4*s"]>>, tensor<4x?xi64, #cermet.symbols<["s"]>>
}

// CHECK-LABEL: @transposes
// CHECK-NEXT: %[[T:.*]] = cermet.transpose %arg0 [2, 1, 0] : tensor<2x3x4xf32> to tensor<4x3x2xf32>
// CHECK-NEXT: return %arg0, %[[T]], %arg0
func.func @transposes(%x: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>) {
  %0 = cermet.transpose %x [0, 1, 2] : tensor<2x3x4xf32> to tensor<2x3x4xf32>
  %1 = cermet.transpose %x [2, 0, 1] : tensor<2x3x4xf32> to tensor<4x2x3xf32>
  %2 = cermet.transpose %1 [0, 2, 1] : tensor<4x2x3xf32> to tensor<4x3x2xf32>
  %3 = cermet.transpose %1 [1, 2, 0] : tensor<4x2x3xf32> to tensor<2x3x4xf32>
  return %0, %2, %3 : tensor<2x3x4xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>
}

// CHECK-LABEL: @slices
// CHECK-NEXT: %[[S:.*]] = cermet.slice %arg0 [3, 2] : tensor<8x8xf32> to tensor<2x1xf32>
// CHECK-NEXT: return %arg0, %[[S]]
func.func @slices(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<2x1xf32>) {
  %0 = cermet.slice %x [0, 0] : tensor<8x8xf32> to tensor<8x8xf32>
  %1 = cermet.slice %x [2, 0] : tensor<8x8xf32> to tensor<5x4xf32>
  %2 = cermet.slice %1 [1, 2] : tensor<5x4xf32> to tensor<2x1xf32>
  return %0, %2 : tensor<8x8xf32>, tensor<2x1xf32>
}

// What several read in part stays: a head of packed ones.
// CHECK-LABEL: @slices_of_a_slice
// CHECK-NEXT: %[[S:.*]] = cermet.slice %arg0 [0, 4]
// CHECK-NEXT: cermet.slice %[[S]] [0, 0]
// CHECK-NEXT: cermet.slice %[[S]] [0, 1]
func.func @slices_of_a_slice(%x: tensor<8x8xf32>) -> (tensor<8x1xf32>, tensor<8x3xf32>) {
  %0 = cermet.slice %x [0, 4] : tensor<8x8xf32> to tensor<8x4xf32>
  %1 = cermet.slice %0 [0, 0] : tensor<8x4xf32> to tensor<8x1xf32>
  %2 = cermet.slice %0 [0, 1] : tensor<8x4xf32> to tensor<8x3xf32>
  return %1, %2 : tensor<8x1xf32>, tensor<8x3xf32>
}

// The first slice compares a with b + 1 when run: it stays. The other one does not change a.
// CHECK-LABEL: @slices_of_symbols
// CHECK-NEXT: cermet.slice %arg0 [1, 0]
// CHECK-NEXT: cermet.slice %{{.*}} [1, 2]
// CHECK-NEXT: %[[S:.*]] = cermet.slice %arg0 [3, 5] : tensor<?x8xf32, #cermet.symbols<["a"]>> to tensor<2x2xf32>
// CHECK-NEXT: return %{{.*}}, %[[S]]
func.func @slices_of_symbols(%x: tensor<?x8xf32, #cermet.symbols<["a"]>>, %y: tensor<?x8xf32, #cermet.symbols<["b"]>>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %0 = cermet.slice %x [1, 0] : tensor<?x8xf32, #cermet.symbols<["a"]>> to tensor<?x8xf32, #cermet.symbols<["b"]>>
  %1 = cermet.slice %0 [1, 2] : tensor<?x8xf32, #cermet.symbols<["b"]>> to tensor<2x2xf32>
  %2 = cermet.slice %x [0, 4] : tensor<?x8xf32, #cermet.symbols<["a"]>> to tensor<?x4xf32, #cermet.symbols<["a"]>>
  %3 = cermet.slice %2 [3, 1] : tensor<?x4xf32, #cermet.symbols<["a"]>> to tensor<2x2xf32>
  return %1, %3 : tensor<2x2xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: @concat_of_one
// CHECK-NEXT: return %arg0
func.func @concat_of_one(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = cermet.concat %x {dim = 0 : i64} : tensor<8xf32> to tensor<8xf32>
  return %0 : tensor<8xf32>
}

// A constant takes another type where that type, and its own, hold the number.
// CHECK-LABEL: @constants
// CHECK-DAG: %[[C:.*]] = cermet.constant 2.500000e+00 : tensor<4xf32>
// CHECK-DAG: %[[B:.*]] = cermet.constant 1.000000e-01 : tensor<4xf32>
// CHECK-DAG: %[[R:.*]] = cermet.cast %[[B]] : tensor<4xf32> to tensor<4xf64>
// CHECK-DAG: %[[H:.*]] = cermet.constant 2.500000e+00 : tensor<4xbf16>
// CHECK-DAG: %[[I:.*]] = cermet.cast %[[H]] : tensor<4xbf16> to tensor<4xi32>
// CHECK: return %[[C]], %[[R]], %[[I]]
func.func @constants() -> (tensor<4xf32>, tensor<4xf64>, tensor<4xi32>) {
  %0 = cermet.constant 2.5 : tensor<4xbf16>
  %1 = cermet.cast %0 : tensor<4xbf16> to tensor<4xf32>
  %2 = cermet.constant 0.1 : tensor<4xf32>
  %3 = cermet.cast %2 : tensor<4xf32> to tensor<4xf64>
  %4 = cermet.cast %0 : tensor<4xbf16> to tensor<4xi32>
  return %1, %3, %4 : tensor<4xf32>, tensor<4xf64>, tensor<4xi32>
}

// Not exact where x is -0 or NaN: they stay.
// CHECK-LABEL: @zeros
// CHECK: cermet.add
// CHECK-NEXT: cermet.mul
func.func @zeros(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = cermet.constant 0.0 : tensor<4xf32>
  %1 = cermet.add %x, %0 : tensor<4xf32>
  %2 = cermet.mul %1, %0 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// Pure opaque operations go when nobody reads them; others stay.
// CHECK-LABEL: @opaque
// CHECK-NEXT: cermet.opaque "aten.bernoulli"
// CHECK-NEXT: return
func.func @opaque(%x: tensor<4xf32>) {
  %0 = cermet.opaque "aten.erf"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = cermet.opaque "aten.bernoulli"(%x) {effect = "effectful"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
