// ask: compile sm_90
// status: 2
// error: graph:7:10: Dialect `arith' not found for custom op 'arith.negf' 
// error: graph:7:10: note: Available dialects: builtin, cermet (*), func (*) (* corresponding to loaded but unregistered dialects); for more info on dialect registration see https://mlir.llvm.org/getting_started/Faq/#registered-loaded-dependent-whats-up-with-dialects-management
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>) {
    %y = arith.negf %x : tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
