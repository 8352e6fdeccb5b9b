// kernels: 1, of its gradient: 1
// The mean is subtracted, the variance divided out, weight and bias applied.
!t = tensor<?x768xf32, #cermet.symbols<["r0"]>>
!r = tensor<?x1xf32, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @layer_norm(%x: !t, %w: tensor<768xf32>, %b: tensor<768xf32>) -> !t {
    %n = cermet.constant 768.0 : !r
    %eps = cermet.constant 1.0e-5 : !r
    %s = cermet.reduce_sum %x : !t to !r
    %m = cermet.div %s, %n : !r
    %mb = cermet.broadcast %m : !r to !t
    %d = cermet.sub %x, %mb : !t
    %q = cermet.mul %d, %d : !t
    %v = cermet.reduce_sum %q : !t to !r
    %vm = cermet.div %v, %n : !r
    %ve = cermet.add %vm, %eps : !r
    %rs = cermet.rsqrt %ve : !r
    %rb = cermet.broadcast %rs : !r to !t
    %y = cermet.mul %d, %rb : !t
    %wb = cermet.broadcast %w : tensor<768xf32> to !t
    %bb = cermet.broadcast %b : tensor<768xf32> to !t
    %yw = cermet.mul %y, %wb : !t
    %yb = cermet.add %yw, %bb : !t
    return %yb : !t
  }
}
