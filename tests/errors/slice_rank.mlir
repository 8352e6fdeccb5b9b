// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.slice' op result has rank 1, expected 2 (operand's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<8xf32>) {
    %y = cermet.slice %x [0, 0] : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
