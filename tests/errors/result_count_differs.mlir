// ask: compile sm_90
// status: 2
// error: graph:6:5: 'func.return' op has 0 operands, but enclosing function (@f) returns 1
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    return
  }
}
