// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.neg' op operand #0 must be ranked tensor of 64-bit float or 32-bit float or bfloat16 type or 16-bit float or 64-bit signless integer or 32-bit signless integer or 16-bit signless integer or 8-bit signless integer or 8-bit unsigned integer values, but got 'tensor<8xf6E2M3FN>'
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf6E2M3FN>) -> (tensor<8xf6E2M3FN>) {
    %y = cermet.neg %x : tensor<8xf6E2M3FN>
    return %y : tensor<8xf6E2M3FN>
  }
}
