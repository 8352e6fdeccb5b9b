module attributes {cermet.version = 1 : i64} {
  func.func @random(%x0: tensor<?x7xbf16, #cermet.symbols<["r0"]>>, %x4: tensor<7xf16>) -> (tensor<?x7xbf16, #cermet.symbols<["r0"]>>, tensor<?x7xbf16, #cermet.symbols<["r0"]>>, tensor<7xbf16>, tensor<7xbf16>) {
    %0 = cermet.cast %x4 : tensor<7xf16> to tensor<7xbf16>
    %1 = cermet.broadcast %0 : tensor<7xbf16> to tensor<?x7xbf16, #cermet.symbols<["r0"]>>
    %2 = cermet.mul %x0, %1 : tensor<?x7xbf16, #cermet.symbols<["r0"]>>
    return %2, %1, %0, %0 : tensor<?x7xbf16, #cermet.symbols<["r0"]>>, tensor<?x7xbf16, #cermet.symbols<["r0"]>>, tensor<7xbf16>, tensor<7xbf16>
  }
}
