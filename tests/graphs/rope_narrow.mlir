// kernels: 1, of its gradient: 1 (q)
// Rotary position embedding of heads whose halves are no power of two: six threads share a row.
!t = tensor<?x?x?x96xbf16, #cermet.symbols<["b", "h", "s"]>>
!h = tensor<?x?x?x48xbf16, #cermet.symbols<["b", "h", "s"]>>
!c = tensor<?x1x?x96xbf16, #cermet.symbols<["b", "s"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @rope_narrow(%q: !t, %cos: !c, %sin: !c) -> !t {
    %cosb = cermet.broadcast %cos : !c to !t
    %plain = cermet.mul %q, %cosb : !t
    %low = cermet.slice %q [0, 0, 0, 0] : !t to !h
    %high = cermet.slice %q [0, 0, 0, 48] : !t to !h
    %negated = cermet.neg %high : !h
    %rotated = cermet.concat %negated, %low {dim = 3 : i64} : !h, !h to !t
    %sinb = cermet.broadcast %sin : !c to !t
    %turned = cermet.mul %rotated, %sinb : !t
    %result = cermet.add %plain, %turned : !t
    return %result : !t
  }
}
