// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.rms_norm' op x has shape [4, c], expected a static last dimension
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4x?xbf16, #cermet.symbols<["c"]>>, %weight: tensor<?xbf16, #cermet.symbols<["c"]>>) -> (tensor<4x?xbf16, #cermet.symbols<["c"]>>) {
    %y = cermet.rms_norm %x, %weight {eps = 1.0e-6} : tensor<4x?xbf16, #cermet.symbols<["c"]>>, tensor<?xbf16, #cermet.symbols<["c"]>> to tensor<4x?xbf16, #cermet.symbols<["c"]>>
    return %y : tensor<4x?xbf16, #cermet.symbols<["c"]>>
  }
}
