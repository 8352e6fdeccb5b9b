// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.glu' op requires the same encoding for all operands and results
module attributes {cermet.version = 1 : i64} {
  func.func @f(%a: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %b: tensor<?x8xbf16, #cermet.symbols<["n"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = "cermet.glu"(%a, %b) : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<?x8xbf16, #cermet.symbols<["n"]>>) -> tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
