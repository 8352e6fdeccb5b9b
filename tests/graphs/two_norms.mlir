// kernels: 1, of its gradient: 1
// Two norms with a residual between them, as a decoder of post-norms has it.
!t = tensor<?x?x4096xbf16, #cermet.symbols<["b", "t"]>>
!f = tensor<?x?x4096xf32, #cermet.symbols<["b", "t"]>>
!r = tensor<?x?x1xf32, #cermet.symbols<["b", "t"]>>
!w = tensor<4096xbf16>
module attributes {cermet.version = 1 : i64} {
  func.func @two_norms(%x: !t, %residual: !t, %w1: !w, %w2: !w) -> (!t, !t) {
    %n = cermet.constant 4096.0 : !r
    %eps = cermet.constant 1.0e-6 : !r
    %xf = cermet.cast %x : !t to !f
    %q = cermet.mul %xf, %xf : !f
    %s = cermet.reduce_sum %q : !f to !r
    %m = cermet.div %s, %n : !r
    %v = cermet.add %m, %eps : !r
    %i = cermet.rsqrt %v : !r
    %ib = cermet.broadcast %i : !r to !f
    %y = cermet.mul %xf, %ib : !f
    %yt = cermet.cast %y : !f to !t
    %w1b = cermet.broadcast %w1 : !w to !t
    %z = cermet.mul %w1b, %yt : !t
    %h = cermet.add %z, %residual : !t
    %hf = cermet.cast %h : !t to !f
    %q2 = cermet.mul %hf, %hf : !f
    %s2 = cermet.reduce_sum %q2 : !f to !r
    %m2 = cermet.div %s2, %n : !r
    %v2 = cermet.add %m2, %eps : !r
    %i2 = cermet.rsqrt %v2 : !r
    %i2b = cermet.broadcast %i2 : !r to !f
    %y2 = cermet.mul %hf, %i2b : !f
    %y2t = cermet.cast %y2 : !f to !t
    %w2b = cermet.broadcast %w2 : !w to !t
    %o = cermet.mul %w2b, %y2t : !t
    return %o, %h : !t, !t
  }
}
