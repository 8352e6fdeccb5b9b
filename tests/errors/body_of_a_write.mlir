// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.opaque' op has cermet.body, expected it on a pure cermet.opaque only
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.opaque "launch"(%x) {cermet.body = @body, effect = "write", versions = 1 : i64} : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
