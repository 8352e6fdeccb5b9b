// ask: compile sm_90
// status: 2
// error: graph:6:14: 'cermet.add_rms_norm' op sum has element type 'bf16', expected 'f32' (promoted from x's and residual's)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %residual: tensor<?x8xf32, #cermet.symbols<["r0"]>>, %weight: tensor<8xbf16>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y, %s = cermet.add_rms_norm %x, %residual, %weight {eps = 1.0e-6} : tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<?x8xf32, #cermet.symbols<["r0"]>>, tensor<8xbf16> to tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y, %s : tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
