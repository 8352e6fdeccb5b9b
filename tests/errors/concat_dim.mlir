// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.concat' op dim is 1 with a result of rank 1, expected at least 0 and less than the rank
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>) -> (tensor<16xf32>) {
    %y = cermet.concat %x, %x {dim = 1 : i64} : tensor<8xf32>, tensor<8xf32> to tensor<16xf32>
    return %y : tensor<16xf32>
  }
}
