// The CUDA C++ of the program, its forward and its backward is reviewed as a diff of Inputs/rms_norm.cu. After an intended change:
//     tests/lit/compiler/update.sh BUILD
// RUN: cermet-print-programs %s sm_90 | diff -u %S/Inputs/rms_norm.cu -
module attributes {cermet.version = 1 : i64} {
  func.func @rms_norm(%x: tensor<?x?x4096xbf16, #cermet.symbols<["r0", "r1"]>>, %weight: tensor<4096xbf16>) -> (tensor<?x?x4096xbf16, #cermet.symbols<["r0", "r1"]>>) {
    %y = cermet.rms_norm %x, %weight {eps = 1.0e-6, round_before_weight} : tensor<?x?x4096xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<4096xbf16> to tensor<?x?x4096xbf16, #cermet.symbols<["r0", "r1"]>>
    return %y : tensor<?x?x4096xbf16, #cermet.symbols<["r0", "r1"]>>
  }
}
