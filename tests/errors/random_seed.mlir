// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.random' op seed has shape [2], expected one number
module attributes {cermet.version = 1 : i64} {
  func.func @f(%s: tensor<2xi64>) -> (tensor<8xi64>) {
    %y = cermet.random %s : tensor<2xi64> to tensor<8xi64>
    return %y : tensor<8xi64>
  }
}
