// What is read one index of a dimension at a time is computed so, from parts of what is stored.
// RUN: cermet-opt %s -cermet-compute-parts-apart | FileCheck %s

!x = tensor<?x64xf32, #cermet.symbols<["rows"]>>
!i = tensor<?x2xi64, #cermet.symbols<["tokens"]>>
!w = tensor<?x2x1xf32, #cermet.symbols<["tokens"]>>
!all = tensor<?x2x64xf32, #cermet.symbols<["tokens"]>>
!one = tensor<?x1x64xf32, #cermet.symbols<["tokens"]>>
!y = tensor<?x64xf32, #cermet.symbols<["tokens"]>>

// CHECK-LABEL: func.func @weighted_rows(
// CHECK: %[[S0:.*]] = cermet.slice %arg1 [0, 0]
// CHECK: %[[I0:.*]] = cermet.reshape %[[S0]]
// CHECK: %[[G0:.*]] = cermet.gather %arg0, %[[I0]] {{.*}} to tensor<?x64xf32
// CHECK: cermet.slice %arg2 [0, 0, 0]
// CHECK: %[[M0:.*]] = cermet.mul %[[G0]], {{.*}} : tensor<?x64xf32
// CHECK: %[[S1:.*]] = cermet.slice %arg1 [0, 1]
// CHECK: %[[I1:.*]] = cermet.reshape %[[S1]]
// CHECK: %[[G1:.*]] = cermet.gather %arg0, %[[I1]]
// CHECK: %[[M1:.*]] = cermet.mul %[[G1]]
// CHECK: %[[Y:.*]] = cermet.add %[[M0]], %[[M1]]
// CHECK: return %[[Y]]
func.func @weighted_rows(%x: !x, %i: !i, %w: !w) -> !y {
  %rows = cermet.gather %x, %i : !x, !i to !all
  %wide = cermet.broadcast %w : !w to !all
  %product = cermet.mul %rows, %wide : !all
  %first = cermet.slice %product [0, 0, 0] : !all to !one
  %a = cermet.reshape %first : !one to !y
  %second = cermet.slice %product [0, 1, 0] : !all to !one
  %b = cermet.reshape %second : !one to !y
  %sum = cermet.add %a, %b : !y
  return %sum : !y
}

// Somebody reads all of it: it is stored, and its parts are views.
// CHECK-LABEL: func.func @read_whole(
// CHECK: %[[E:.*]] = cermet.exp %arg0
// CHECK: cermet.slice %[[E]]
// CHECK: return
func.func @read_whole(%x: !all) -> (!y, !all) {
  %e = cermet.exp %x : !all
  %first = cermet.slice %e [0, 1, 0] : !all to !one
  %a = cermet.reshape %first : !one to !y
  return %a, %e : !y, !all
}

// A part that is read twice would be computed twice.
// CHECK-LABEL: func.func @read_twice(
// CHECK: %[[E:.*]] = cermet.exp %arg0 : tensor<?x2x64
// CHECK: return
func.func @read_twice(%x: !all) -> !y {
  %e = cermet.exp %x : !all
  %first = cermet.slice %e [0, 1, 0] : !all to !one
  %a = cermet.reshape %first : !one to !y
  %again = cermet.slice %e [0, 1, 0] : !all to !one
  %b = cermet.reshape %again : !one to !y
  %sum = cermet.mul %a, %b : !y
  return %sum : !y
}

// What the operand of an operation is read by beside it is not computed twice, either.
// CHECK-LABEL: func.func @operand_read_elsewhere(
// CHECK: %[[E:.*]] = cermet.exp %arg0 : tensor<?x2x64
// CHECK: %[[N:.*]] = cermet.neg %[[E]] : tensor<?x2x64
// CHECK: cermet.slice %[[N]]
func.func @operand_read_elsewhere(%x: !all) -> (!y, !all) {
  %e = cermet.exp %x : !all
  %n = cermet.neg %e : !all
  %first = cermet.slice %n [0, 0, 0] : !all to !one
  %a = cermet.reshape %first : !one to !y
  return %a, %e : !y, !all
}
