// ask: compile host:x86-64-v3
// status: 2
// error: graph:6:10: 'cermet.linear_cross_entropy' op result has element type 'bf16', expected 'f32' (in which the loss is computed)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%hidden: tensor<?x8xbf16, #cermet.symbols<["n"]>>, %weight: tensor<50x8xbf16>, %labels: tensor<?xi64, #cermet.symbols<["n"]>>) -> tensor<bf16> {
    %0 = cermet.linear_cross_entropy %hidden, %weight, %labels : tensor<?x8xbf16, #cermet.symbols<["n"]>>, tensor<50x8xbf16>, tensor<?xi64, #cermet.symbols<["n"]>> to tensor<bf16>
    return %0 : tensor<bf16>
  }
}
