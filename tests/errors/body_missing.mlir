// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.opaque' op cermet.body is @body, expected the name of a private func.func of the module
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.opaque "launch"(%x) {cermet.body = @body} : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
