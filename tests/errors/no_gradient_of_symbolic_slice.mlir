// ask: differentiate 1,0
// status: 3
// error: graph:6:10: 'cermet.slice' op from [a, 8] to [b, 8] has no gradient in the dialect: expected dimension 0, of symbol a, to be taken whole
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xf32, #cermet.symbols<["a"]>>, %z: tensor<?x8xf32, #cermet.symbols<["b"]>>) -> (tensor<?x8xf32, #cermet.symbols<["b"]>>) {
    %y = cermet.slice %x [1, 0] : tensor<?x8xf32, #cermet.symbols<["a"]>> to tensor<?x8xf32, #cermet.symbols<["b"]>>
    return %y : tensor<?x8xf32, #cermet.symbols<["b"]>>
  }
}
