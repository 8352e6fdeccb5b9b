// kernels: 1, of its gradient: 1
// The loss of each row from its logits and its label, NaN where the label is no column; a label of -100 does not count.
!t = tensor<?x32000xbf16, #cermet.symbols<["r0"]>>
!f = tensor<?x32000xf32, #cermet.symbols<["r0"]>>
!l = tensor<?x1xi64, #cermet.symbols<["r0"]>>
!c = tensor<?x1xi1, #cermet.symbols<["r0"]>>
!r = tensor<?x1xf32, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @label_loss(%logits: !t, %label: !l) -> !r {
    %wide = cermet.cast %logits : !t to !f
    %max = cermet.reduce_max %wide : !f to !r
    %maxb = cermet.broadcast %max : !r to !f
    %shifted = cermet.sub %wide, %maxb : !f
    %e = cermet.exp %shifted : !f
    %sum = cermet.reduce_sum %e : !f to !r
    %lse = cermet.log %sum : !r
    %lseb = cermet.broadcast %lse : !r to !f
    %logp = cermet.sub %shifted, %lseb : !f
    %ignore = cermet.constant -100.0 : !l
    %counts = cermet.compare "ne", %label, %ignore : !l to !c
    %first = cermet.constant 0.0 : !l
    %class = cermet.select %counts, %label, %first : !c, !l
    %picked = cermet.pick %logp, %class : !f, !l to !r
    %negated = cermet.neg %picked : !r
    %nothing = cermet.constant 0.0 : !r
    %loss = cermet.select %counts, %negated, %nothing : !c, !r
    return %loss : !r
  }
}
