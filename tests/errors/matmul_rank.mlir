// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.matmul' op rhs has rank 1, expected 2
module attributes {cermet.version = 1 : i64} {
  func.func @f(%a: tensor<?x8xbf16, #cermet.symbols<["r0"]>>, %b: tensor<8xbf16>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.matmul %a, %b : tensor<?x8xbf16, #cermet.symbols<["r0"]>>, tensor<8xbf16> to tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
