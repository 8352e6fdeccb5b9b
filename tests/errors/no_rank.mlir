// ask: compile sm_90
// status: 2
// error: graph:5:16: argument 0 (x) 'tensor<*xf32>' has no rank, expected a ranked tensor
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<*xf32>) -> (tensor<*xf32>) {
    return %x : tensor<*xf32>
  }
}
