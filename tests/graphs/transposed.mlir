// kernels: 1, of its gradient: 2
// Another order of dimensions on the way in: the last one has a stride, and the gradient is written through it.
!t = tensor<?x96x64xf32, #cermet.symbols<["n"]>>
!u = tensor<?x64x96xf32, #cermet.symbols<["n"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @transposed(%x: !t, %y: !u) -> !u {
    %xt = cermet.transpose %x [0, 2, 1] : !t to !u
    %s = cermet.sigmoid %xt : !u
    %p = cermet.mul %s, %y : !u
    return %p : !u
  }
}
