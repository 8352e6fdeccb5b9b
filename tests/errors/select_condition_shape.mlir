// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.select' op condition has shape [1], expected [8] (result's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%c: tensor<1xi1>, %x: tensor<8xf32>) -> (tensor<8xf32>) {
    %y = cermet.select %c, %x, %x : tensor<1xi1>, tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
