// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.compare' op predicate is "less", expected "eq", "ne", "lt", "le", "gt" or "ge"
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>) -> (tensor<8xi1>) {
    %y = cermet.compare "less", %x, %x : tensor<8xf32> to tensor<8xi1>
    return %y : tensor<8xi1>
  }
}
