// Slices and concats of a short row become reads of its columns in another order.
// RUN: cermet-opt %s -cermet-read-columns | FileCheck %s

!t = tensor<?x8xf32, #cermet.symbols<["r0"]>>
!h = tensor<?x4xf32, #cermet.symbols<["r0"]>>
!p = tensor<?x4x2xf32, #cermet.symbols<["r0"]>>
!o = tensor<?x4x1xf32, #cermet.symbols<["r0"]>>

// CHECK-LABEL: func.func @half(
// CHECK-NOT: concat
// CHECK: %[[OTHER:.*]] = cermet.columns %arg0 [4, 5, 6, 7, 0, 1, 2, 3]
// CHECK: %[[NEG:.*]] = cermet.neg %[[OTHER]]
// CHECK: %[[COLUMN:.*]] = cermet.iota 0
// CHECK: %[[SECOND:.*]] = cermet.compare "ge", %[[COLUMN]], %{{.*}}
// CHECK: cermet.select %{{.*}}, %[[OTHER]], %[[NEG]]
func.func @half(%x: !t) -> !t {
  %low = cermet.slice %x [0, 0] : !t to !h
  %high = cermet.slice %x [0, 4] : !t to !h
  %negated = cermet.neg %high : !h
  %rotated = cermet.concat %negated, %low {dim = 1 : i64} : !h, !h to !t
  return %rotated : !t
}

// CHECK-LABEL: func.func @pairs(
// CHECK-NOT: concat
// CHECK: %[[OTHER:.*]] = cermet.columns %arg0 [1, 0, 3, 2, 5, 4, 7, 6]
// CHECK: cermet.iota 0 {period = 2 : i64}
// CHECK-NOT: cermet.columns
// CHECK: return
func.func @pairs(%x: !t) -> !t {
  %pairs = cermet.reshape %x : !t to !p
  %even = cermet.slice %pairs [0, 0, 0] : !p to !o
  %odd = cermet.slice %pairs [0, 0, 1] : !p to !o
  %negated = cermet.neg %odd : !o
  %stacked = cermet.concat %negated, %even {dim = 2 : i64} : !o, !o to !p
  %rotated = cermet.reshape %stacked : !p to !t
  return %rotated : !t
}

// Sines of half a row are read twice; the rest of a row stays.
// CHECK-LABEL: func.func @part(
// CHECK-NOT: concat
// CHECK: cermet.columns %arg1 [0, 1, 0, 1, 0, 1, 0, 1]
// CHECK-NOT: concat
// CHECK: return
!q = tensor<?x2xf32, #cermet.symbols<["r0"]>>
func.func @part(%x: !t, %cos: !q) -> !t {
  %a = cermet.slice %x [0, 0] : !t to !q
  %b = cermet.slice %x [0, 2] : !t to !q
  %rest = cermet.slice %x [0, 4] : !t to !h
  %first = cermet.mul %a, %cos : !q
  %second = cermet.mul %b, %cos : !q
  %turned = cermet.concat %first, %second, %rest {dim = 1 : i64} : !q, !q, !h to !t
  return %turned : !t
}

// Two tensors are better written where they belong.
// CHECK-LABEL: func.func @unrelated(
// CHECK: cermet.concat
func.func @unrelated(%x: !h, %y: !h) -> !t {
  %e = cermet.exp %x : !h
  %both = cermet.concat %e, %y {dim = 1 : i64} : !h, !h to !t
  return %both : !t
}
