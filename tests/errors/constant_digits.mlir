// ask: compile sm_90
// status: 2
// error: graph:6:26: custom op 'cermet.constant' 0xFFF0000000000000 has 16 hexadecimal digits, expected 8 (the bits of 'f32')
module attributes {cermet.version = 1 : i64} {
  func.func @f() -> tensor<8xf32> {
    %y = cermet.constant 0xFFF0000000000000 : tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
