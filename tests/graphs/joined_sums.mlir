// kernels: 1, of its gradient: 2
// Two tensors become one, and its rows are summed: each is read once, by a program of its own in one launch.
!a = tensor<?x1288xbf16, #cermet.symbols<["r0"]>>
!b = tensor<?x520xbf16, #cermet.symbols<["r0"]>>
!t = tensor<?x1808xbf16, #cermet.symbols<["r0"]>>
!fa = tensor<?x1288xf32, #cermet.symbols<["r0"]>>
!fb = tensor<?x520xf32, #cermet.symbols<["r0"]>>
!sa = tensor<1288xf32>
!sb = tensor<520xf32>
!s = tensor<1808xf32>
module attributes {cermet.version = 1 : i64} {
  func.func @joined_sums(%a: !a, %b: !b) -> (!t, !s) {
    %wa = cermet.cast %a : !a to !fa
    %wb = cermet.cast %b : !b to !fb
    %sa = cermet.sum_rows %wa : !fa to !sa
    %sb = cermet.sum_rows %wb : !fb to !sb
    %whole = cermet.concat %a, %b {dim = 1 : i64} : !a, !b to !t
    %sums = cermet.concat %sa, %sb {dim = 0 : i64} : !sa, !sb to !s
    return %whole, %sums : !t, !s
  }
}
