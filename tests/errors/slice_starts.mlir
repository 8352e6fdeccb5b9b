// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.slice' op starts is [4], expected 2 numbers (one for each dimension)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x4xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.slice %x [4] : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?x4xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x4xf32, #cermet.symbols<["r0"]>>
  }
}
