// ask: compile sm_90
// status: 2
// error: graph:5:16: argument 0 (x) has 1 strides, expected 2 (one for each dimension, in elements, -1 where unknown)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>> {cermet.strides = array<i64: 8>}) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    return %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
