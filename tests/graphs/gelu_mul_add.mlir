// kernels: 1, of its gradient: 1
// Elementwise work alone: gelu(x) * y + r.
!t = tensor<?x768xbf16, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @gelu_mul_add(%x: !t, %y: !t, %r: !t) -> !t {
    %g = cermet.gelu %x : !t
    %p = cermet.mul %g, %y : !t
    %s = cermet.add %p, %r : !t
    return %s : !t
  }
}
