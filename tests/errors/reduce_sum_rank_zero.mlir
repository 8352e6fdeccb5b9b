// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.reduce_sum' op operand has rank 0, expected a last dimension to work over
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<f32>) -> (tensor<f32>) {
    %y = cermet.reduce_sum %x : tensor<f32> to tensor<f32>
    return %y : tensor<f32>
  }
}
