// ask: compile host:x86-64-v3
// status: 2
// error: graph:6:10: 'cermet.linear_cross_entropy' op reduction is "average", expected "mean", "sum" or "none"
module attributes {cermet.version = 1 : i64} {
  func.func @f(%hidden: tensor<?x8xbf16, #cermet.symbols<["n"]>>, %weight: tensor<50x8xbf16>, %labels: tensor<?xi64, #cermet.symbols<["n"]>>) -> tensor<f32> {
    %0 = cermet.linear_cross_entropy %hidden, %weight, %labels {reduction = "average"} : tensor<?x8xbf16, #cermet.symbols<["n"]>>, tensor<50x8xbf16>, tensor<?xi64, #cermet.symbols<["n"]>> to tensor<f32>
    return %0 : tensor<f32>
  }
}
