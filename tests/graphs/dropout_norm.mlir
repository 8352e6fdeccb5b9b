// kernels: 1, of its gradient: 1
// A residual, a dropout of a tenth and a norm in bf16, as behind each product of an encoder; the gradient makes the mask again.
!t = tensor<?x?x1024xbf16, #cermet.symbols<["r0", "r1"]>>
!f = tensor<?x?x1024xf32, #cermet.symbols<["r0", "r1"]>>
!i = tensor<?x?x1024xi64, #cermet.symbols<["r0", "r1"]>>
!b = tensor<?x?x1024xi1, #cermet.symbols<["r0", "r1"]>>
!r = tensor<?x?x1xf32, #cermet.symbols<["r0", "r1"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @dropout_norm(%x: !t, %residual: !t, %seed: tensor<i64>, %w: tensor<1024xbf16>) -> (!t, !t) {
    %numbers = cermet.random %seed : tensor<i64> to !i
    %least = cermet.constant 429496730.0 : !i
    %kept = cermet.compare "ge", %numbers, %least : !i to !b
    %scale = cermet.constant 1.1111111111111112 : !f
    %zero = cermet.constant 0.0 : !f
    %factor = cermet.select %kept, %scale, %zero : !b, !f
    %wide = cermet.cast %x : !t to !f
    %scaled = cermet.mul %wide, %factor : !f
    %dropped = cermet.cast %scaled : !f to !t
    %sum = cermet.add %dropped, %residual : !t
    %h = cermet.cast %sum : !t to !f
    %n = cermet.constant 1024.0 : !r
    %eps = cermet.constant 1.0e-5 : !r
    %s = cermet.reduce_sum %h : !f to !r
    %m = cermet.div %s, %n : !r
    %mb = cermet.broadcast %m : !r to !f
    %d = cermet.sub %h, %mb : !f
    %q = cermet.mul %d, %d : !f
    %v = cermet.reduce_sum %q : !f to !r
    %vm = cermet.div %v, %n : !r
    %ve = cermet.add %vm, %eps : !r
    %k = cermet.rsqrt %ve : !r
    %kb = cermet.broadcast %k : !r to !f
    %y = cermet.mul %d, %kb : !f
    %wf = cermet.cast %w : tensor<1024xbf16> to tensor<1024xf32>
    %wb = cermet.broadcast %wf : tensor<1024xf32> to !f
    %yw = cermet.mul %y, %wb : !f
    %result = cermet.cast %yw : !f to !t
    return %result, %sum : !t, !t
  }
}
