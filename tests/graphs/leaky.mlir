// kernels: 1, of its gradient: 2
// What is below zero has a slope that is learnt, over a last dimension that is known only when it runs.
!t = tensor<?x?xf32, #cermet.symbols<["a", "b"]>>
!b = tensor<?x?xi1, #cermet.symbols<["a", "b"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @leaky(%x: !t, %slope: tensor<1xf32>) -> !t {
    %zero = cermet.constant 0.0 : !t
    %above = cermet.compare "gt", %x, %zero : !t to !b
    %slopes = cermet.broadcast %slope : tensor<1xf32> to !t
    %below = cermet.mul %x, %slopes : !t
    %y = cermet.select %above, %x, %below : !b, !t
    return %y : !t
  }
}
