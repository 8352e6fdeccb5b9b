// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.rms_norm' op weight has shape [1, 8], expected [8] (last dimension of x)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %weight: tensor<1x8xbf16>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.rms_norm %x, %weight {eps = 1.0e-6} : tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<1x8xbf16> to tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
