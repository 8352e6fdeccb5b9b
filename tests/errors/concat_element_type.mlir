// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.concat' op operand 1 has element type 'bf16', expected 'f32' (result's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>, %z: tensor<8xbf16>) -> (tensor<16xf32>) {
    %y = cermet.concat %x, %z {dim = 0 : i64} : tensor<8xf32>, tensor<8xbf16> to tensor<16xf32>
    return %y : tensor<16xf32>
  }
}
