// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.slice' op starts[0] is 1, expected 0 (the dimension is r0 in operand and result: it is whole)
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x8xf32, #cermet.symbols<["r0"]>>) {
    %y = cermet.slice %x [1, 0] : tensor<?x8xf32, #cermet.symbols<["r0"]>> to tensor<?x8xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xf32, #cermet.symbols<["r0"]>>
  }
}
