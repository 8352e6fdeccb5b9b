// ask: compile sm_90
// status: 2
// error: graph:6:10: 'cermet.embedding_bag' op sums are 'bf16' of shape [1, 8], expected f32 of rank 2 with source's last dimension
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<4x8xbf16>, %i: tensor<6xi64>, %b: tensor<5xi64>, %s: tensor<1x8xbf16>) -> (tensor<5x8xbf16>) {
    %y = cermet.embedding_bag %x, %i, %b, %b sums %s : tensor<4x8xbf16>, tensor<6xi64>, tensor<5xi64> sums tensor<1x8xbf16> to tensor<5x8xbf16>
    return %y : tensor<5x8xbf16>
  }
}
