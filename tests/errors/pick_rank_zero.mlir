// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.pick' op operand has shape [], expected at least one dimension (columns)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<f32>, %i: tensor<i64>) -> (tensor<f32>) {
    %y = cermet.pick %x, %i : tensor<f32>, tensor<i64> to tensor<f32>
    return %y : tensor<f32>
  }
}
