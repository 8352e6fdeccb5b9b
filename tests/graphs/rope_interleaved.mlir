// kernels: 1, of its gradient: 1 (q)
// Rotary position embedding of neighbouring pairs, of the first 32 columns of a head of 48, sines and cosines of half a row.
!t = tensor<?x?x48xf32, #cermet.symbols<["h", "s"]>>
!r = tensor<?x?x32xf32, #cermet.symbols<["h", "s"]>>
!p = tensor<?x?x16x2xf32, #cermet.symbols<["h", "s"]>>
!o = tensor<?x?x16x1xf32, #cermet.symbols<["h", "s"]>>
!h = tensor<?x?x16xf32, #cermet.symbols<["h", "s"]>>
!rest = tensor<?x?x16xf32, #cermet.symbols<["h", "s"]>>
!c = tensor<?x16xf32, #cermet.symbols<["s"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @rope(%q: !t, %cos: !c, %sin: !c) -> !t {
    %turning = cermet.slice %q [0, 0, 0] : !t to !r
    %rest = cermet.slice %q [0, 0, 32] : !t to !rest
    %pairs = cermet.reshape %turning : !r to !p
    %even1 = cermet.slice %pairs [0, 0, 0, 0] : !p to !o
    %odd1 = cermet.slice %pairs [0, 0, 0, 1] : !p to !o
    %even = cermet.reshape %even1 : !o to !h
    %odd = cermet.reshape %odd1 : !o to !h
    %cosb = cermet.broadcast %cos : !c to !h
    %sinb = cermet.broadcast %sin : !c to !h
    %a = cermet.mul %even, %cosb : !h
    %b = cermet.mul %odd, %sinb : !h
    %first = cermet.sub %a, %b : !h
    %c = cermet.mul %odd, %cosb : !h
    %d = cermet.mul %even, %sinb : !h
    %second = cermet.add %c, %d : !h
    %first1 = cermet.reshape %first : !h to !o
    %second1 = cermet.reshape %second : !h to !o
    %stacked = cermet.concat %first1, %second1 {dim = 3 : i64} : !o, !o to !p
    %turned = cermet.reshape %stacked : !p to !r
    %result = cermet.concat %turned, %rest {dim = 2 : i64} : !r, !rest to !t
    return %result : !t
  }
}
