// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.pick' op result has element type 'bf16', expected 'f32' (operand's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4x8xf32>, %i: tensor<4x1xi64>) -> (tensor<4x1xbf16>) {
    %y = cermet.pick %x, %i : tensor<4x8xf32>, tensor<4x1xi64> to tensor<4x1xbf16>
    return %y : tensor<4x1xbf16>
  }
}
