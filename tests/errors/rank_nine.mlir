// ask: compile sm_90
// status: 2
// error: graph:5:16: argument 0 (x) 'tensor<1x1x1x1x1x1x1x1x8xf32>' has rank 9, expected at most 8
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<1x1x1x1x1x1x1x1x8xf32>) -> (tensor<1x1x1x1x1x1x1x1x8xf32>) {
    %y = cermet.neg %x : tensor<1x1x1x1x1x1x1x1x8xf32>
    return %y : tensor<1x1x1x1x1x1x1x1x8xf32>
  }
}
