// ask: compile sm_90
// status: 3
// error: x has type index; a plan's values are tensors and numbers of f32 bf16 f16 f64 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 i1
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: index) -> (index) {
    return %x : index
  }
}
