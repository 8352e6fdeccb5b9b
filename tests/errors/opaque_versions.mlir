// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.opaque' op versions is 2, expected 1 to the smaller of 1 operands and 1 results
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.opaque "aten.add_"(%x) {effect = "write", versions = 2 : i64} : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
