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

// Pure opaque operations go when nobody reads them; others stay.
// CHECK-LABEL: @opaque
// CHECK-NEXT: cermet.opaque "aten.bernoulli"
// CHECK-NEXT: return
func.func @opaque(%x: tensor<4xf32>) {
  %0 = cermet.opaque "aten.erf"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = cermet.opaque "aten.bernoulli"(%x) {effect = "effectful"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
