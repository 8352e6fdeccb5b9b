// kernels: 1, of its gradient: 1
// Scores above the diagonal are masked by indices of rows and columns, then softmax.
!t = tensor<?x?x256xbf16, #cermet.symbols<["heads", "t"]>>
!f = tensor<?x?x256xf32, #cermet.symbols<["heads", "t"]>>
!i = tensor<?x?x256xi64, #cermet.symbols<["heads", "t"]>>
!b = tensor<?x?x256xi1, #cermet.symbols<["heads", "t"]>>
!r = tensor<?x?x1xf32, #cermet.symbols<["heads", "t"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @causal_softmax(%scores: !t) -> !t {
    %column = cermet.iota 2 : !i
    %row = cermet.iota 1 : !i
    %seen = cermet.compare "le", %column, %row : !i to !b
    %wide = cermet.cast %scores : !t to !f
    %scale = cermet.constant 0.125 : !f
    %scaled = cermet.mul %wide, %scale : !f
    %low = cermet.constant -1.0e9 : !f
    %masked = cermet.select %seen, %scaled, %low : !b, !f
    %max = cermet.reduce_max %masked : !f to !r
    %maxb = cermet.broadcast %max : !r to !f
    %shifted = cermet.sub %masked, %maxb : !f
    %e = cermet.exp %shifted : !f
    %sum = cermet.reduce_sum %e : !f to !r
    %sumb = cermet.broadcast %sum : !r to !f
    %y = cermet.div %e, %sumb : !f
    %out = cermet.cast %y : !f to !t
    return %out : !t
  }
}
