// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.div' op operand #0 must be ranked tensor of 64-bit float or 32-bit float or bfloat16 type or 16-bit float values, but got 'tensor<8xi32>'
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xi32>) -> (tensor<8xi32>) {
    %y = cermet.div %x, %x : tensor<8xi32>
    return %y : tensor<8xi32>
  }
}
