// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.opaque' op has operands and results of other types than its body @body, expected those of '(tensor<?x4xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x4xbf16, #cermet.symbols<["r0"]>>', where each symbol is one size throughout
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.opaque "launch"(%x) {cermet.body = @body} : (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
  func.func private @body(%x: tensor<?x4xbf16, #cermet.symbols<["r0"]>>) -> tensor<?x4xbf16, #cermet.symbols<["r0"]>> {
    %y = cermet.neg %x : tensor<?x4xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x4xbf16, #cermet.symbols<["r0"]>>
  }
}
