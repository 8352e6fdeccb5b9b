// ask: compile sm_90
// status: 2
// error: graph:6:37: affine expressions have no place in a graph
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>) {
    %y = cermet.opaque "g"(%x) {a = affine_map<(d) -> (d)>} : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
