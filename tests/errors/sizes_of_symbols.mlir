// ask: compile sm_90
// status: 2
// error: graph:4:1: cermet.sizes is {r0 = 0 : i64}, expected symbols with numbers of at least 1
module attributes {cermet.version = 1 : i64, cermet.sizes = {r0 = 0 : i64}} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.neg %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
