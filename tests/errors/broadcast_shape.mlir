// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.broadcast' op operand has shape [7], expected one that extends to the result's shape [r0, 8]: dimensions aligned at the right, each 1 or equal
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<7xbf16>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.broadcast %x : tensor<7xbf16> to tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
