// ask: compile sm_90
// status: 2
// error: graph:5:16: argument 0 (x) 'tensor<0x8xf32>' has a dimension of size 0, expected sizes of at least 1
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<0x8xf32>) -> (tensor<0x8xf32>) {
    %y = cermet.neg %x : tensor<0x8xf32>
    return %y : tensor<0x8xf32>
  }
}
