// The CUDA C++ of the program, its forward and its backward is reviewed as a diff of Inputs/glu.cu. After an intended change:
//     tests/lit/compiler/update.sh BUILD
// RUN: cermet-print-programs %s sm_90 | diff -u %S/Inputs/glu.cu -
module attributes {cermet.version = 1 : i64} {
  func.func @glu(%gate: tensor<?x?x14336xbf16, #cermet.symbols<["r0", "r1"]>>, %up: tensor<?x?x14336xbf16, #cermet.symbols<["r0", "r1"]>>) -> (tensor<?x?x14336xbf16, #cermet.symbols<["r0", "r1"]>>) {
    %y = cermet.glu %gate, %up : tensor<?x?x14336xbf16, #cermet.symbols<["r0", "r1"]>>
    return %y : tensor<?x?x14336xbf16, #cermet.symbols<["r0", "r1"]>>
  }
}
