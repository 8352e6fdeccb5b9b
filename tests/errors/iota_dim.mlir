// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.iota' op dim is -1 with a result of rank 1, expected at least 0 and less than the rank
module attributes {cermet.version = 1 : i64} {
  func.func @f() -> (tensor<8xi64>) {
    %y = cermet.iota -1 : tensor<8xi64>
    return %y : tensor<8xi64>
  }
}
