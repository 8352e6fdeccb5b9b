// kernels: 1, of its gradient: 1 (x weight)
// A norm of each head of the queries, then rotary position embedding.
!t = tensor<?x?x?x128xbf16, #cermet.symbols<["b", "h", "s"]>>
!f = tensor<?x?x?x128xf32, #cermet.symbols<["b", "h", "s"]>>
!r = tensor<?x?x?x1xf32, #cermet.symbols<["b", "h", "s"]>>
!h = tensor<?x?x?x64xbf16, #cermet.symbols<["b", "h", "s"]>>
!c = tensor<?x1x?x128xbf16, #cermet.symbols<["b", "s"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @qk_norm_rope(%x: !t, %weight: tensor<128xbf16>, %cos: !c, %sin: !c) -> !t {
    %q = cermet.rms_norm %x, %weight {eps = 1.0e-6 : f64, round_before_weight} : !t, tensor<128xbf16> to !t
    %cosb = cermet.broadcast %cos : !c to !t
    %plain = cermet.mul %q, %cosb : !t
    %low = cermet.slice %q [0, 0, 0, 0] : !t to !h
    %high = cermet.slice %q [0, 0, 0, 64] : !t to !h
    %negated = cermet.neg %high : !h
    %rotated = cermet.concat %negated, %low {dim = 3 : i64} : !h, !h to !t
    %sinb = cermet.broadcast %sin : !c to !t
    %turned = cermet.mul %rotated, %sinb : !t
    %result = cermet.add %plain, %turned : !t
    return %result : !t
  }
}
