// ask: compile sm_90
// status: 2
// error: graph:5:16: argument 0 (x) 'tensor<4611686018427387904x8xf32>' has more elements than 2^60
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4611686018427387904x8xf32>) -> (tensor<4611686018427387904x8xf32>) {
    %y = cermet.neg %x : tensor<4611686018427387904x8xf32>
    return %y : tensor<4611686018427387904x8xf32>
  }
}
