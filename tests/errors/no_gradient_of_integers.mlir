// ask: differentiate 1,1
// status: 3
// error: graph:5:3: input 1 (labels) has type 'tensor<8xi64>', expected a float tensor where a gradient is wanted
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %labels: tensor<8xi64>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.neg %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
