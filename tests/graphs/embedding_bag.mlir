// kernels: 1, of its gradient: 1 (scale)
// Rows of a table summed by number, a row of the result each; scaled.
!table = tensor<32x264xbf16>
!list = tensor<?xi64, #cermet.symbols<["places"]>>
!bound = tensor<?xi32, #cermet.symbols<["bags"]>>
!t = tensor<?x264xbf16, #cermet.symbols<["bags"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @bags(%table: !table, %list: !list, %begins: !bound, %ends: !bound, %scale: !t) -> !t {
    %sums = cermet.embedding_bag %table, %list, %begins, %ends : !table, !list, !bound to !t
    %y = cermet.mul %sums, %scale : !t
    return %y : !t
  }
}
