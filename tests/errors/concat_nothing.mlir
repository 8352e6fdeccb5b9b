// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.concat' op has no operands, expected at least one
module attributes {cermet.version = 1 : i64} {
  func.func @f() -> (tensor<8xf32>) {
    %y = "cermet.concat"() {dim = 0 : i64} : () -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
