// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.rms_norm' op requires attribute 'eps'
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %weight: tensor<8xbf16>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.rms_norm %x, %weight {} : tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<8xbf16> to tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
