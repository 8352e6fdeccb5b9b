// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.matmul' op rhs has shape [7, 8], expected dimension 0 to be lhs's last, lhs is [r0, 8]
module attributes {cermet.version = 1 : i64} {
  func.func @f(%a: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %b: tensor<7x8xbf16>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.matmul %a, %b : tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<7x8xbf16> to tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
