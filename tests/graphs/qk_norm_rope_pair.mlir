// kernels: 1, of its gradient: 1 (q wq k wk)
// Norms of the heads of queries and keys, heads before positions, then rotary position embedding of both.
!q = tensor<?x?x?x128xbf16, #cermet.symbols<["b", "s", "hq"]>>
!qt = tensor<?x?x?x128xbf16, #cermet.symbols<["b", "hq", "s"]>>
!qh = tensor<?x?x?x64xbf16, #cermet.symbols<["b", "hq", "s"]>>
!k = tensor<?x?x?x128xbf16, #cermet.symbols<["b", "s", "hk"]>>
!kt = tensor<?x?x?x128xbf16, #cermet.symbols<["b", "hk", "s"]>>
!kh = tensor<?x?x?x64xbf16, #cermet.symbols<["b", "hk", "s"]>>
!c = tensor<1x1x?x128xbf16, #cermet.symbols<["s"]>>
!w = tensor<128xbf16>
module attributes {cermet.version = 1 : i64} {
  func.func @qk_norm_rope_pair(%q: !q, %wq: !w, %k: !k, %wk: !w, %cos: !c, %sin: !c) -> (!qt, !kt) {
    %0 = cermet.rms_norm %q, %wq {eps = 9.9999999999999995E-7 : f64, round_before_weight} : !q, !w to !q
    %1 = cermet.transpose %0 [0, 2, 1, 3] : !q to !qt
    %2 = cermet.rms_norm %k, %wk {eps = 9.9999999999999995E-7 : f64, round_before_weight} : !k, !w to !k
    %3 = cermet.transpose %2 [0, 2, 1, 3] : !k to !kt
    %4 = cermet.broadcast %cos : !c to !qt
    %5 = cermet.mul %1, %4 : !qt
    %6 = cermet.slice %1 [0, 0, 0, 0] : !qt to !qh
    %7 = cermet.slice %1 [0, 0, 0, 64] : !qt to !qh
    %8 = cermet.neg %7 : !qh
    %9 = cermet.concat %8, %6 {dim = 3 : i64} : !qh, !qh to !qt
    %10 = cermet.broadcast %sin : !c to !qt
    %11 = cermet.mul %9, %10 : !qt
    %12 = cermet.add %5, %11 : !qt
    %13 = cermet.broadcast %cos : !c to !kt
    %14 = cermet.mul %3, %13 : !kt
    %15 = cermet.slice %3 [0, 0, 0, 0] : !kt to !kh
    %16 = cermet.slice %3 [0, 0, 0, 64] : !kt to !kh
    %17 = cermet.neg %16 : !kh
    %18 = cermet.concat %17, %15 {dim = 3 : i64} : !kh, !kh to !kt
    %19 = cermet.broadcast %sin : !c to !kt
    %20 = cermet.mul %18, %19 : !kt
    %21 = cermet.add %14, %20 : !kt
    return %12, %21 : !qt, !kt
  }
}
