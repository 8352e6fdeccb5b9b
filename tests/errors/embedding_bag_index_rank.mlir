// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.embedding_bag' op index has shape [6, 1], expected rank 1 (numbers of rows)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4x8xf32>, %i: tensor<6x1xi64>, %b: tensor<5xi64>) -> (tensor<5x8xf32>) {
    %y = cermet.embedding_bag %x, %i, %b, %b : tensor<4x8xf32>, tensor<6x1xi64>, tensor<5xi64> to tensor<5x8xf32>
    return %y : tensor<5x8xf32>
  }
}
