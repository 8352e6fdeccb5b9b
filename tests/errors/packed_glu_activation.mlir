// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.packed_glu' op activation is "relu", expected "silu", "gelu" or "gelu_tanh"
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x4xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.packed_glu %x {activation = "relu"} : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?x4xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x4xf32, #cermet.symbols<["r0"]>>
  }
}
