// ask: compile sm_90
// status: 2
// error: graph:7:25: use of value '%b' expects different type than prior uses: 'tensor<?x8xbf16, #cermet.symbols<["r0"]>>' vs 'tensor<?x8xf32, #cermet.symbols<["r0"]>>'
// error: graph:6:63: note: prior use here
module attributes {cermet.version = 1 : i64} {
  func.func @f(%a: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %b: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.add %a, %b : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
