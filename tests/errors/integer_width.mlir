// ask: compile sm_90
// status: 2
// error: graph:6:41: i65536 is an integer type of more bits than 1024
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>) {
    %y = cermet.opaque "g"(%x) {a = 1 : i65536} : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
