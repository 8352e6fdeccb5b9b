// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.sum_rows' op result has shape [7], expected [8] (operand's last dimension)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<7xbf16>) {
    %y = cermet.sum_rows %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>> to tensor<7xbf16>
    return %y : tensor<7xbf16>
  }
}
