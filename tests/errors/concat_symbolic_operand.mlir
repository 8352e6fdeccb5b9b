// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.concat' op operand 0 has shape [r0, 8], expected a static dimension 0 (it is joined along)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<8x8xf32>) {
    %y = cermet.concat %x {dim = 0 : i64} : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<8x8xf32>
    return %y : tensor<8x8xf32>
  }
}
