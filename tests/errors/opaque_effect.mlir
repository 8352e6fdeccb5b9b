// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.opaque' op effect is "writes", expected "pure", "effectful" or "write"
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.opaque "aten.add_"(%x) {effect = "writes"} : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
