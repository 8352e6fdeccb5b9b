// kernels: 1, of its gradient: 1
// The loss of each row from its logits and its label.
!t = tensor<?x32000xbf16, #cermet.symbols<["r0"]>>
!f = tensor<?x32000xf32, #cermet.symbols<["r0"]>>
!i = tensor<?x32000xi64, #cermet.symbols<["r0"]>>
!b = tensor<?x32000xi1, #cermet.symbols<["r0"]>>
!l = tensor<?x1xi64, #cermet.symbols<["r0"]>>
!r = tensor<?x1xf32, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @cross_entropy(%logits: !t, %label: !l) -> !r {
    %wide = cermet.cast %logits : !t to !f
    %max = cermet.reduce_max %wide : !f to !r
    %maxb = cermet.broadcast %max : !r to !f
    %shifted = cermet.sub %wide, %maxb : !f
    %e = cermet.exp %shifted : !f
    %sum = cermet.reduce_sum %e : !f to !r
    %lse = cermet.log %sum : !r
    %column = cermet.iota 1 : !i
    %labelb = cermet.broadcast %label : !l to !i
    %here = cermet.compare "eq", %column, %labelb : !i to !b
    %zero = cermet.constant 0.0 : !f
    %picked = cermet.select %here, %shifted, %zero : !b, !f
    %score = cermet.reduce_sum %picked : !f to !r
    %loss = cermet.sub %lse, %score : !r
    return %loss : !r
  }
}
