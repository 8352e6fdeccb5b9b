// kernels: 1, of its gradient: 1
// A gated unit that is quantised for the next matrix product: each token has a scale, the largest of its values / 448.
!t = tensor<?x4096xbf16, #cermet.symbols<["r0"]>>
!f = tensor<?x4096xf32, #cermet.symbols<["r0"]>>
!q = tensor<?x4096xf8E4M3FN, #cermet.symbols<["r0"]>>
!r = tensor<?x1xf32, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @quantise(%gate: !t, %up: !t) -> (!q, !r) {
    %largest = cermet.constant 448.0 : !r
    %smallest = cermet.constant 1.0e-12 : !r
    %a = cermet.silu %gate : !t
    %y = cermet.mul %a, %up : !t
    %f = cermet.cast %y : !t to !f
    %size = cermet.abs %f : !f
    %most = cermet.reduce_max %size : !f to !r
    %scale = cermet.div %most, %largest : !r
    %safe = cermet.max %scale, %smallest : !r
    %b = cermet.broadcast %safe : !r to !f
    %z = cermet.div %f, %b : !f
    %q = cermet.cast %z : !f to !q
    return %q, %safe : !q, !r
  }
}
