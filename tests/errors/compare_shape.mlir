// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.compare' op result has shape [4], expected [8] (lhs's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>) -> (tensor<4xi1>) {
    %y = cermet.compare "lt", %x, %x : tensor<8xf32> to tensor<4xi1>
    return %y : tensor<4xi1>
  }
}
