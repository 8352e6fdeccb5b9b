// ask: compile sm_90
// status: 2
// error: graph:6:26: custom op 'cermet.constant' 0x2A is the bits of a real, expected a decimal such as 42.0 (the elements are 'i64')
module attributes {cermet.version = 1 : i64} {
  func.func @f() -> tensor<8xi64> {
    %y = cermet.constant 0x2A : tensor<8xi64>
    return %y : tensor<8xi64>
  }
}
