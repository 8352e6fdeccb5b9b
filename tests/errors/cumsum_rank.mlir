// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.cumsum' op operand has rank 0, expected a last dimension to work over
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<f32>) -> (tensor<f32>) {
    %y = cermet.cumsum %x : tensor<f32>
    return %y : tensor<f32>
  }
}
