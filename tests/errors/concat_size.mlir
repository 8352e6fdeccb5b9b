// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.concat' op result has shape [r0, 15], expected [r0, 16] (operands' sizes added up along dimension 1)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x15xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.concat %x, %x {dim = 1 : i64} : tensor<?x8xf32, #cermet.symbols<["r0"]>>, tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?x15xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x15xf32, #cermet.symbols<["r0"]>>
  }
}
