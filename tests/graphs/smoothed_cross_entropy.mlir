// kernels: 1, of its gradient: 1
// Loss and gradient behind a softcap and a factor, with smoothed labels and a term of the squared log-sum: an odd row.
!t = tensor<?x50257xbf16, #cermet.symbols<["r0"]>>
!f = tensor<?x50257xf32, #cermet.symbols<["r0"]>>
!i = tensor<?x50257xi64, #cermet.symbols<["r0"]>>
!b = tensor<?x50257xi1, #cermet.symbols<["r0"]>>
!l = tensor<?x1xi64, #cermet.symbols<["r0"]>>
!r = tensor<?x1xf32, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @smoothed_cross_entropy(%logits: !t, %label: !l, %scale: !r) -> (!r, !t) {
    %wide = cermet.cast %logits : !t to !f
    %factor = cermet.constant 0.0625 : !f
    %scaled = cermet.mul %wide, %factor : !f
    %cap = cermet.constant 30.0 : !f
    %part = cermet.div %scaled, %cap : !f
    %bent = cermet.tanh %part : !f
    %capped = cermet.mul %bent, %cap : !f
    %max = cermet.reduce_max %capped : !f to !r
    %maxb = cermet.broadcast %max : !r to !f
    %shifted = cermet.sub %capped, %maxb : !f
    %e = cermet.exp %shifted : !f
    %sum = cermet.reduce_sum %e : !f to !r
    %log = cermet.log %sum : !r
    %logb = cermet.broadcast %log : !r to !f
    %logp = cermet.sub %shifted, %logb : !f
    %column = cermet.iota 1 : !i
    %labelb = cermet.broadcast %label : !l to !i
    %here = cermet.compare "eq", %column, %labelb : !i to !b
    %zero = cermet.constant 0.0 : !f
    %mine = cermet.select %here, %logp, %zero : !b, !f
    %picked = cermet.reduce_sum %mine : !f to !r
    %all = cermet.reduce_sum %logp : !f to !r
    %lse = cermet.add %log, %max : !r
    %square = cermet.mul %lse, %lse : !r
    %penalty = cermet.constant 1.0e-4 : !r
    %z = cermet.mul %square, %penalty : !r
    %most = cermet.constant -0.9 : !r
    %rest = cermet.constant -1.9897729669498777e-06 : !r
    %own = cermet.mul %picked, %most : !r
    %others = cermet.mul %all, %rest : !r
    %smoothed = cermet.add %own, %others : !r
    %loss = cermet.add %smoothed, %z : !r
    %p = cermet.exp %logp : !f
    %two = cermet.constant 2.0e-4 : !r
    %slope = cermet.mul %lse, %two : !r
    %one = cermet.constant 1.0 : !r
    %weight = cermet.add %slope, %one : !r
    %weightb = cermet.broadcast %weight : !r to !f
    %weighted = cermet.mul %p, %weightb : !f
    %low = cermet.constant 1.9897729669498777e-06 : !f
    %high = cermet.constant 0.9000019897729669 : !f
    %target = cermet.select %here, %high, %low : !b, !f
    %difference = cermet.sub %weighted, %target : !f
    %bentsquare = cermet.mul %bent, %bent : !f
    %ones = cermet.constant 1.0 : !f
    %chain = cermet.sub %ones, %bentsquare : !f
    %dcapped = cermet.mul %difference, %chain : !f
    %dscaled = cermet.mul %dcapped, %factor : !f
    %scaleb = cermet.broadcast %scale : !r to !f
    %dwide = cermet.mul %dscaled, %scaleb : !f
    %dlogits = cermet.cast %dwide : !f to !t
    return %loss, %dlogits : !r, !t
  }
}
