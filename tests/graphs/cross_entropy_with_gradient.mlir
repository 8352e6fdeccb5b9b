// kernels: 1, of its gradient: 1
// The loss of each row and, in the same kernel, its gradient: rows are too long for registers or shared memory.
!t = tensor<?x128256xbf16, #cermet.symbols<["r0"]>>
!f = tensor<?x128256xf32, #cermet.symbols<["r0"]>>
!i = tensor<?x128256xi64, #cermet.symbols<["r0"]>>
!b = tensor<?x128256xi1, #cermet.symbols<["r0"]>>
!l = tensor<?x1xi64, #cermet.symbols<["r0"]>>
!c = tensor<?x1xi1, #cermet.symbols<["r0"]>>
!r = tensor<?x1xf32, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @cross_entropy(%logits: !t, %label: !l, %scale: !r) -> (!r, !t) {
    %wide = cermet.cast %logits : !t to !f
    %max = cermet.reduce_max %wide : !f to !r
    %maxb = cermet.broadcast %max : !r to !f
    %shifted = cermet.sub %wide, %maxb : !f
    %e = cermet.exp %shifted : !f
    %sum = cermet.reduce_sum %e : !f to !r
    %lse = cermet.log %sum : !r
    %lseb = cermet.broadcast %lse : !r to !f
    %logp = cermet.sub %shifted, %lseb : !f
    %column = cermet.iota 1 : !i
    %labelb = cermet.broadcast %label : !l to !i
    %here = cermet.compare "eq", %column, %labelb : !i to !b
    %zero = cermet.constant 0.0 : !f
    %mine = cermet.select %here, %logp, %zero : !b, !f
    %picked = cermet.reduce_sum %mine : !f to !r
    %ignore = cermet.constant -100.0 : !l
    %valid = cermet.compare "ne", %label, %ignore : !l to !c
    %nothing = cermet.constant 0.0 : !r
    %negated = cermet.neg %picked : !r
    %loss = cermet.select %valid, %negated, %nothing : !c, !r
    %p = cermet.exp %logp : !f
    %onehot = cermet.cast %here : !b to !f
    %difference = cermet.sub %p, %onehot : !f
    %scaleb = cermet.broadcast %scale : !r to !f
    %scaled = cermet.mul %difference, %scaleb : !f
    %validb = cermet.broadcast %valid : !c to !b
    %dwide = cermet.select %validb, %scaled, %zero : !b, !f
    %dlogits = cermet.cast %dwide : !f to !t
    return %loss, %dlogits : !r, !t
  }
}
