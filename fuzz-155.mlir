module attributes {cermet.version = 1 : i64} {
  func.func @random(%x0: tensor<?x1x?x?x1xf16, #cermet.symbols<["r0", "r2", "r3"]>>, %in2: tensor<f16>) -> tensor<?x1x?x?x1xf16, #cermet.symbols<["r0", "r2", "r3"]>> {
    %0 = cermet.broadcast %in2 : tensor<f16> to tensor<?x1x?x?x1xf16, #cermet.symbols<["r0", "r2", "r3"]>>
    %1 = cermet.mul %x0, %0 : tensor<?x1x?x?x1xf16, #cermet.symbols<["r0", "r2", "r3"]>>
    return %1 : tensor<?x1x?x?x1xf16, #cermet.symbols<["r0", "r2", "r3"]>>
  }
}
