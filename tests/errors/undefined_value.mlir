// ask: compile sm_90
// status: 2
// error: graph:6:12: use of undeclared SSA value name
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    return %z : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
