// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.embedding_bag' op source has shape [8], expected rank 2 (rows to add)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>, %i: tensor<6xi64>, %b: tensor<5xi64>) -> (tensor<5x8xf32>) {
    %y = cermet.embedding_bag %x, %i, %b, %b : tensor<8xf32>, tensor<6xi64>, tensor<5xi64> to tensor<5x8xf32>
    return %y : tensor<5x8xf32>
  }
}
