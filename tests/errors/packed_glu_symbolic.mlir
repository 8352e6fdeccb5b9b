// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.packed_glu' op packed has shape [2, r0], expected a static last dimension that two halves share
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<2x?xf32, #cermet.symbols<["r0"]>>) -> (tensor<2x3xf32>) {
    %y = cermet.packed_glu %x : tensor<2x?xf32, #cermet.symbols<["r0"]>> to tensor<2x3xf32>
    return %y : tensor<2x3xf32>
  }
}
