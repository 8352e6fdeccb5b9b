// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.cast' op result has shape [8], expected [r0, 8] (operand's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<8xf32>) {
    %y = cermet.cast %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>> to tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
