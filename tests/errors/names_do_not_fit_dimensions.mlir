// ask: compile sm_90
// status: 2
// error: graph:5:66: #cermet.symbols names 2 dimensions, the tensor type has 1 that are '?': expected one name for each, left to right
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0", "r1"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0", "r1"]>>) {
    %y = cermet.neg %x : tensor<?x8xbf16, #cermet.symbols<["r0", "r1"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0", "r1"]>>
  }
}
