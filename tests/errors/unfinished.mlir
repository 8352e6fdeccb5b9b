// ask: compile sm_90
// status: 2
// error: graph:7:51: unbalanced '[' character in pretty dialect name
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.neg %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"