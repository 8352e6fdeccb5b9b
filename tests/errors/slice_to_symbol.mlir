// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.slice' op result has shape [r0, 8], expected a static dimension 0 (the operand's is 8)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8x8xf32>, %z: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x8xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.slice %x [0, 0] : tensor<8x8xf32> to tensor<?x8xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xf32, #cermet.symbols<["r0"]>>
  }
}
