// The CUDA C++ of two programs side by side in one launch is reviewed as a diff of Inputs/beside.cu. After an intended change:
//     tests/lit/compiler/update.sh BUILD
// RUN: cermet-print-programs %s sm_90 | diff -u %S/Inputs/beside.cu -
!q = tensor<?x32x?x128xbf16, #cermet.symbols<["b", "s"]>>
!k = tensor<?x8x?x64xf32, #cermet.symbols<["b", "s"]>>
!c = tensor<?x1x?x1xf32, #cermet.symbols<["b", "s"]>>
!i = tensor<?x1x?x1xi1, #cermet.symbols<["b", "s"]>>
!iq = tensor<?x32x?x128xi1, #cermet.symbols<["b", "s"]>>
!ik = tensor<?x8x?x64xi1, #cermet.symbols<["b", "s"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @kept(%q: !q, %k: !k, %c: !c) -> (!q, !k) {
    %zero = cermet.constant 0.0 : !c
    %is = cermet.compare "gt", %c, %zero : !c to !i
    %isq = cermet.broadcast %is : !i to !iq
    %isk = cermet.broadcast %is : !i to !ik
    %zeroq = cermet.constant 0.0 : !q
    %zerok = cermet.constant 0.0 : !k
    %keptq = cermet.select %isq, %q, %zeroq : !iq, !q
    %keptk = cermet.select %isk, %k, %zerok : !ik, !k
    return %keptq, %keptk : !q, !k
  }
}
