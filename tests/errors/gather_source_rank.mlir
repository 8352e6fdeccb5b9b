// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.gather' op source has shape [8], expected rank 2 (rows to choose from)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>, %i: tensor<?xi64, #cermet.symbols<["r0"]>>) -> (tensor<?xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.gather %x, %i : tensor<8xf32>, tensor<?xi64, #cermet.symbols<["r0"]>> to tensor<?xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?xf32, #cermet.symbols<["r0"]>>
  }
}
