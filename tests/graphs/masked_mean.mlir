// kernels: 1, of its gradient: 1
// Booleans, integers and f16: the mean of the elements that a mask keeps, and how many they are.
!t = tensor<?x?x129xf16, #cermet.symbols<["a", "b"]>>
!f = tensor<?x?x129xf32, #cermet.symbols<["a", "b"]>>
!m = tensor<?x1x129xi1, #cermet.symbols<["a"]>>
!b = tensor<?x?x129xi1, #cermet.symbols<["a", "b"]>>
!r = tensor<?x?x1xf32, #cermet.symbols<["a", "b"]>>
!n = tensor<?x?x1xi32, #cermet.symbols<["a", "b"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @masked_mean(%x: !t, %mask: !m) -> (!r, !n) {
    %keep = cermet.broadcast %mask : !m to !b
    %wide = cermet.cast %x : !t to !f
    %zero = cermet.constant 0.0 : !f
    %kept = cermet.select %keep, %wide, %zero : !b, !f
    %sum = cermet.reduce_sum %kept : !f to !r
    %one = cermet.cast %keep : !b to !f
    %count = cermet.reduce_sum %one : !f to !r
    %least = cermet.constant 1.0 : !r
    %divisor = cermet.max %count, %least : !r
    %mean = cermet.div %sum, %divisor : !r
    %number = cermet.cast %count : !r to !n
    return %mean, %number : !r, !n
  }
}
