// A text's limits are looked at before MLIR's parser reads it, here as in a parsed graph (tests/unit/ir/text/TextTest.cpp).
// RUN: not cermet-opt %s 2>&1 | FileCheck %s
// CHECK: graph:6:41: i65536 is an integer type of more bits than 1024
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>) {
    %y = cermet.opaque "g"(%x) {a = 1 : i65536} : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
