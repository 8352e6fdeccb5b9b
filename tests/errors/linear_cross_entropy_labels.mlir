// ask: compile host:x86-64-v3
// status: 2
// error: graph:6:10: 'cermet.linear_cross_entropy' op labels has shape [n, 1], expected [n] (hidden's without the last dimension)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%hidden: tensor<?x8xbf16, #cermet.symbols<["n"]>>, %weight: tensor<50x8xbf16>, %labels: tensor<?x1xi64, #cermet.symbols<["n"]>>) -> tensor<f32> {
    %0 = cermet.linear_cross_entropy %hidden, %weight, %labels : tensor<?x8xbf16, #cermet.symbols<["n"]>>, tensor<50x8xbf16>, tensor<?x1xi64, #cermet.symbols<["n"]>> to tensor<f32>
    return %0 : tensor<f32>
  }
}
