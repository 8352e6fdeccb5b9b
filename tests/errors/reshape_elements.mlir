// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.reshape' op result has 25 elements [5, 5], expected the operand's 24 [6, 4]
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<6x4xf32>) -> (tensor<5x5xf32>) {
    %y = cermet.reshape %x : tensor<6x4xf32> to tensor<5x5xf32>
    return %y : tensor<5x5xf32>
  }
}
