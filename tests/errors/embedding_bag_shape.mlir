// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.embedding_bag' op result has shape [5, 4], expected [5, 8] (begins', then source's last dimension)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4x8xf32>, %i: tensor<6xi64>, %b: tensor<5xi64>) -> (tensor<5x4xf32>) {
    %y = cermet.embedding_bag %x, %i, %b, %b : tensor<4x8xf32>, tensor<6xi64>, tensor<5xi64> to tensor<5x4xf32>
    return %y : tensor<5x4xf32>
  }
}
