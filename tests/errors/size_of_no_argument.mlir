// ask: compile sm_90
// status: 3
// error: result0 has the size tokens, which no argument of the graph has; a launch learns sizes from those
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<1x?xf32, #cermet.symbols<["r0"]>>) -> tensor<?x1xf32, #cermet.symbols<["tokens"]>> {
    %y = cermet.reshape %x : tensor<1x?xf32, #cermet.symbols<["r0"]>> to tensor<?x1xf32, #cermet.symbols<["tokens"]>>
    return %y : tensor<?x1xf32, #cermet.symbols<["tokens"]>>
  }
}
