// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.transpose' op permutation is [0, 2], expected each of the operand's 2 dimensions once, counted from 0
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<8x?xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.transpose %x [0, 2] : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<8x?xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<8x?xf32, #cermet.symbols<["r0"]>>
  }
}
