// kernels: 1, of its gradient: 2 (weights)
// A mixture of experts: the rows of four experts, where they lie sorted by expert, weighted, summed and added.
// Labels say which: numbers that rows have.
!rows = tensor<32x256xbf16>
!places = tensor<?x4xi64, #cermet.symbols<["tokens"]>>
!weights = tensor<?x4x1xbf16, #cermet.symbols<["tokens"]>>
!all = tensor<?x4x256xbf16, #cermet.symbols<["tokens"]>>
!wide = tensor<?x4x256xf32, #cermet.symbols<["tokens"]>>
!one = tensor<?x1x256xf32, #cermet.symbols<["tokens"]>>
!f = tensor<?x256xf32, #cermet.symbols<["tokens"]>>
!t = tensor<?x256xbf16, #cermet.symbols<["tokens"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @mixture(%rows: !rows, %labels: !places, %weights: !weights, %residual: !t) -> !t {
    %chosen = cermet.gather %rows, %labels : !rows, !places to !all
    %w = cermet.broadcast %weights : !weights to !all
    %product = cermet.mul %chosen, %w : !all
    %h = cermet.cast %product : !all to !wide
    %s0 = cermet.slice %h [0, 0, 0] : !wide to !one
    %s1 = cermet.slice %h [0, 1, 0] : !wide to !one
    %s2 = cermet.slice %h [0, 2, 0] : !wide to !one
    %s3 = cermet.slice %h [0, 3, 0] : !wide to !one
    %p0 = cermet.reshape %s0 : !one to !f
    %p1 = cermet.reshape %s1 : !one to !f
    %p2 = cermet.reshape %s2 : !one to !f
    %p3 = cermet.reshape %s3 : !one to !f
    %t1 = cermet.add %p0, %p1 : !f
    %t2 = cermet.add %t1, %p2 : !f
    %t3 = cermet.add %t2, %p3 : !f
    %sum = cermet.cast %t3 : !f to !t
    %y = cermet.add %sum, %residual : !t
    return %y : !t
  }
}
