// ask: compile sm_90
// status: 2
// error: graph:6:5: type of return operand 0 ('tensor<?x8xbf16, #cermet.symbols<["r0"]>>') doesn't match function result type ('tensor<?x8xf32, #cermet.symbols<["r0"]>>') in function @f
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xf32, #cermet.symbols<["r0"]>>) {
    return %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
