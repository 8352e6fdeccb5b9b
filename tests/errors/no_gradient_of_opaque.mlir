// ask: differentiate 1
// status: 3
// error: graph:6:10: 'cermet.opaque' op "aten.sort" lies between a wanted input and an output and has no gradient
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.opaque "aten.sort"(%x) : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x8xbf16, #cermet.symbols<["r0"]>> loc("sort")
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
