// kernels: 1, of its gradient: 1 (q)
// Rotary position embedding of queries as a model writes it: the second half of a head negated, before the first.
!t = tensor<?x?x?x128xbf16, #cermet.symbols<["b", "h", "s"]>>
!h = tensor<?x?x?x64xbf16, #cermet.symbols<["b", "h", "s"]>>
!c = tensor<?x1x?x128xbf16, #cermet.symbols<["b", "s"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @rope(%q: !t, %cos: !c, %sin: !c) -> !t {
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
