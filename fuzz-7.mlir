module attributes {cermet.version = 1 : i64} {
  func.func @random(%x0: tensor<?x?x2x1xf16, #cermet.symbols<["r0", "r1"]>>, %x1: tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>) -> (tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>) {
    %0 = cermet.neg %x1 : tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>
    %1 = cermet.constant 5.000000e-01 : tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>
    %2 = cermet.mul %0, %0 : tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>
    %3 = cermet.add %2, %1 : tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>
    %4 = cermet.div %0, %3 : tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>
    return %4, %2 : tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<?x?x2x1xbf16, #cermet.symbols<["r0", "r1"]>>
  }
}
