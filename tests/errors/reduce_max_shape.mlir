// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.reduce_max' op result has shape [r0], expected [r0, 1] (operand's with the last dimension 1)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.reduce_max %x : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?xf32, #cermet.symbols<["r0"]>>
  }
}
