module attributes {cermet.version = 1 : i64} {
  func.func @random(%whole0: tensor<1x?x100xbf16, #cermet.symbols<["r1"]>>) -> tensor<1x?x100xf32, #cermet.symbols<["r1"]>> {
    %0 = cermet.reduce_min %whole0 : tensor<1x?x100xbf16, #cermet.symbols<["r1"]>> to tensor<1x?x1xbf16, #cermet.symbols<["r1"]>>
    %1 = cermet.broadcast %0 : tensor<1x?x1xbf16, #cermet.symbols<["r1"]>> to tensor<1x?x100xbf16, #cermet.symbols<["r1"]>>
    %2 = cermet.cast %whole0 : tensor<1x?x100xbf16, #cermet.symbols<["r1"]>> to tensor<1x?x100xf32, #cermet.symbols<["r1"]>>
    %3 = cermet.slice %2 [0, 0, 0] : tensor<1x?x100xf32, #cermet.symbols<["r1"]>> to tensor<1x?x50xf32, #cermet.symbols<["r1"]>>
    %4 = cermet.neg %3 : tensor<1x?x50xf32, #cermet.symbols<["r1"]>>
    %5 = cermet.concat %4, %3 {dim = 2 : i64} : tensor<1x?x50xf32, #cermet.symbols<["r1"]>>, tensor<1x?x50xf32, #cermet.symbols<["r1"]>> to tensor<1x?x100xf32, #cermet.symbols<["r1"]>>
    %6 = cermet.cast %1 : tensor<1x?x100xbf16, #cermet.symbols<["r1"]>> to tensor<1x?x100xf32, #cermet.symbols<["r1"]>>
    %7 = cermet.mul %5, %6 : tensor<1x?x100xf32, #cermet.symbols<["r1"]>>
    return %7 : tensor<1x?x100xf32, #cermet.symbols<["r1"]>>
  }
}
