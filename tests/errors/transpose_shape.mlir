// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.transpose' op result has shape [r0, 8], expected [8, r0] (operand's, permuted)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x8xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.transpose %x [1, 0] : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?x8xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xf32, #cermet.symbols<["r0"]>>
  }
}
