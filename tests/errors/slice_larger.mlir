// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.slice' op result has shape [r0, 9], expected dimension 1 to be at most 8 (the operand's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x9xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.slice %x [0, 0] : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?x9xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x9xf32, #cermet.symbols<["r0"]>>
  }
}
