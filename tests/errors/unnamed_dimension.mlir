// ask: compile sm_90
// status: 2
// error: graph:5:16: argument 0 (x) 'tensor<?x8xbf16>' has 1 unnamed dimensions, expected #cermet.symbols<["name", ...]> with a name for each '?'
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16>) -> (tensor<?x8xbf16>) {
    %y = cermet.neg %x : tensor<?x8xbf16>
    return %y : tensor<?x8xbf16>
  }
}
