// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.concat' op operand 1 has shape [3, 8], expected [r0, 8] (result's, but for dimension 1)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>, %z: tensor<3x8xf32>) -> (tensor<?x16xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.concat %x, %z {dim = 1 : i64} : tensor<?x8xf32, #cermet.symbols<["r0"]>>, tensor<3x8xf32> to tensor<?x16xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x16xf32, #cermet.symbols<["r0"]>>
  }
}
