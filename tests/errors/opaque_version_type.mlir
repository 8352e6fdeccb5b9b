// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.opaque' op result 0 has type 'tensor<?x8xf32, #cermet.symbols<["r0"]>>', expected 'tensor<?x8xbf16, #cermet.symbols<["r0"]>>' (a new version of operand 0)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.opaque "aten.add_"(%x) {effect = "write", versions = 1 : i64} : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x8xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xf32, #cermet.symbols<["r0"]>>
  }
}
