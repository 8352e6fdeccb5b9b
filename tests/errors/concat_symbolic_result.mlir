// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.concat' op result has shape [r0, 8], expected a static dimension 0 (it is joined along)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x8xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.concat %x {dim = 0 : i64} : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?x8xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xf32, #cermet.symbols<["r0"]>>
  }
}
