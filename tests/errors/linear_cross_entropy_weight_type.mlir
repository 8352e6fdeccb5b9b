// ask: compile host:x86-64-v3
// status: 2
// error: graph:6:10: 'cermet.linear_cross_entropy' op weight has element type 'f32', expected 'bf16' (hidden's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%hidden: tensor<?x8xbf16, #cermet.symbols<["n"]>>, %weight: tensor<50x8xf32>, %labels: tensor<?xi64, #cermet.symbols<["n"]>>) -> tensor<f32> {
    %0 = cermet.linear_cross_entropy %hidden, %weight, %labels : tensor<?x8xbf16, #cermet.symbols<["n"]>>, tensor<50x8xf32>, tensor<?xi64, #cermet.symbols<["n"]>> to tensor<f32>
    return %0 : tensor<f32>
  }
}
