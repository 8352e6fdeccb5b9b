// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.gather' op result has shape [r0, 4], expected [r0, 8] (index's, then source's last dimension)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<100x8xf32>, %i: tensor<?xi64, #cermet.symbols<["r0"]>>) -> (tensor<?x4xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.gather %x, %i : tensor<100x8xf32>, tensor<?xi64, #cermet.symbols<["r0"]>> to tensor<?x4xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x4xf32, #cermet.symbols<["r0"]>>
  }
}
