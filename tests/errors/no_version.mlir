// ask: compile sm_90
// status: 2
// error: graph:4:1: the module has no cermet.version, expected `cermet.version = 1 : i64`
module {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.neg %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
