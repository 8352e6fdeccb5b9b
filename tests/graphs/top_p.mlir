// kernels: 1, of its gradient: 1
// Of sorted logits the probability of all that are likelier, by which top-p sampling leaves out the tail; in f32 between
// bf16 tensors.
!t = tensor<?x?x1000xbf16, #cermet.symbols<["a", "b"]>>
!f = tensor<?x?x1000xf32, #cermet.symbols<["a", "b"]>>
!r = tensor<?x?x1xf32, #cermet.symbols<["a", "b"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @top_p(%x: !t) -> !t {
    %w = cermet.cast %x : !t to !f
    %m = cermet.reduce_max %w : !f to !r
    %mb = cermet.broadcast %m : !r to !f
    %d = cermet.sub %w, %mb : !f
    %e = cermet.exp %d : !f
    %s = cermet.reduce_sum %e : !f to !r
    %sb = cermet.broadcast %s : !r to !f
    %p = cermet.div %e, %sb : !f
    %c = cermet.cumsum %p : !f
    %y = cermet.sub %c, %p : !f
    %o = cermet.cast %y : !f to !t
    return %o : !t
  }
}
