// What has a norm's core, the reciprocal root of a mean of squares, and fails in one condition: it stays as it is, and the
// condition is reported.
// RUN: cermet-opt %s -cermet-raise 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS --implicit-check-not="near miss"
// RUN: cermet-opt %s -cermet-raise 2>/dev/null | FileCheck %s --check-prefix=STAYS

// STAYS-NOT: cermet.rms_norm

!x = tensor<?x64xbf16, #cermet.symbols<["r0"]>>
!wide = tensor<?x64xf32, #cermet.symbols<["r0"]>>
!row = tensor<?x1xf32, #cermet.symbols<["r0"]>>
!w = tensor<64xbf16>
!wwide = tensor<64xf32>
!a = tensor<2x3x64xbf16>
!awide = tensor<2x3x64xf32>
!arow = tensor<2x3x1xf32>
!n = tensor<?x96xbf16, #cermet.symbols<["r0"]>>
!nwide = tensor<?x96xf32, #cermet.symbols<["r0"]>>

// MISS: near miss of rms_norm at mul_2: the mean is not over the last dimension{{$}}
func.func @opaque_mean(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %mean = cermet.opaque "mean"(%square) : (!wide) -> !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the mean is not over the last dimension{{$}}
func.func @mean_over_rows(%x: tensor<32x64xf32>, %w: !wwide) -> tensor<32x64xf32> {
  %square = cermet.mul %x, %x : tensor<32x64xf32> loc("pow_1")
  %sum = cermet.sum_rows %square : tensor<32x64xf32> to !wwide loc("mean_1")
  %columns = cermet.constant 32.0 : !wwide
  %mean = cermet.div %sum, %columns : !wwide loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !wwide
  %variance = cermet.add %mean, %eps : !wwide loc("add_1")
  %root = cermet.rsqrt %variance : !wwide loc("rsqrt_1")
  %scale = cermet.broadcast %root : !wwide to tensor<32x64xf32> loc("mul_1")
  %normalised = cermet.mul %x, %scale : tensor<32x64xf32> loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to tensor<32x64xf32> loc("mul_2")
  %y = cermet.mul %weights, %normalised : tensor<32x64xf32> loc("mul_2")
  return %y : tensor<32x64xf32>
}

// MISS: near miss of rms_norm at mul_2: the sum of squares is divided by 63, expected 64 (columns of x){{$}}
func.func @wrong_divisor(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 63.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the sum of squares is multiplied by 0.125, expected 1 / 64 (columns of x){{$}}
func.func @wrong_factor(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 0.125 : !row
  %mean = cermet.mul %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the sum of squares is divided by a value that is not a constant, expected 64 (columns of x){{$}}
func.func @divisor_not_constant(%x: !x, %w: !w, %columns: !row) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the sum of squares is not divided by 64 (columns of x){{$}}
func.func @not_divided(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %sum, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: eps is not a constant{{$}}
func.func @tensor_eps(%x: !x, %w: !w, %eps: !row) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: eps is -1e-06, expected a positive finite number{{$}}
func.func @negative_eps(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant -1.0e-6 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: eps is inf, expected a positive finite number{{$}}
func.func @infinite_eps(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 0x7F800000 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: no eps is added to the mean of squares{{$}}
func.func @no_eps(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %root = cermet.rsqrt %mean : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the mean of squares is computed in bf16, expected f32{{$}}
func.func @bf16_statistics(%x: !x, %w: !w) -> !x {
  %square = cermet.mul %x, %x : !x loc("pow_1")
  %sum = cermet.reduce_sum %square : !x to tensor<?x1xbf16, #cermet.symbols<["r0"]>> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<?x1xbf16, #cermet.symbols<["r0"]>>
  %mean = cermet.div %sum, %columns : tensor<?x1xbf16, #cermet.symbols<["r0"]>> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<?x1xbf16, #cermet.symbols<["r0"]>>
  %variance = cermet.add %mean, %eps : tensor<?x1xbf16, #cermet.symbols<["r0"]>> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<?x1xbf16, #cermet.symbols<["r0"]>> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<?x1xbf16, #cermet.symbols<["r0"]>> to !x loc("mul_1")
  %normalised = cermet.mul %x, %scale : !x loc("mul_1")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %normalised : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the mean of squares is rounded to bf16 by `to_7`, expected f32{{$}}
func.func @rounded_mean(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %exact = cermet.div %sum, %columns : !row loc("mean_1")
  %short = cermet.cast %exact : !row to tensor<?x1xbf16, #cermet.symbols<["r0"]>> loc("to_7")
  %mean = cermet.cast %short : tensor<?x1xbf16, #cermet.symbols<["r0"]>> to !row loc("to_8")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the reciprocal root is rounded to bf16 by `to_7`, expected f32{{$}}
func.func @rounded_root(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %short = cermet.cast %root : !row to tensor<?x1xbf16, #cermet.symbols<["r0"]>> loc("to_7")
  %scale = cermet.broadcast %short : tensor<?x1xbf16, #cermet.symbols<["r0"]>> to !x loc("mul_1")
  %rounded = cermet.mul %x, %scale : !x loc("mul_1")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: dtype f64 is not supported{{$}}
func.func @f64(%x: tensor<?x64xf64, #cermet.symbols<["r0"]>>, %w: tensor<64xf64>) -> tensor<?x64xf64, #cermet.symbols<["r0"]>> {
  %square = cermet.mul %x, %x : tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<?x64xf64, #cermet.symbols<["r0"]>> to tensor<?x1xf64, #cermet.symbols<["r0"]>> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<?x1xf64, #cermet.symbols<["r0"]>>
  %mean = cermet.div %sum, %columns : tensor<?x1xf64, #cermet.symbols<["r0"]>> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<?x1xf64, #cermet.symbols<["r0"]>>
  %variance = cermet.add %mean, %eps : tensor<?x1xf64, #cermet.symbols<["r0"]>> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<?x1xf64, #cermet.symbols<["r0"]>> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<?x1xf64, #cermet.symbols<["r0"]>> to tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("mul_1")
  %normalised = cermet.mul %x, %scale : tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("mul_1")
  %weights = cermet.broadcast %w : tensor<64xf64> to tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("mul_2")
  %y = cermet.mul %weights, %normalised : tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("mul_2")
  return %y : tensor<?x64xf64, #cermet.symbols<["r0"]>>
}

// MISS: near miss of rms_norm at mul_2: inner value `mul_1` has another user: add_9{{$}}
func.func @inner_read_elsewhere(%x: !x, %w: !w) -> (!x, !wide) {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  %other = cermet.add %normalised, %wide : !wide loc("add_9")
  return %y, %other : !x, !wide
}

// MISS: near miss of rms_norm at mul_2: inner value `mean_1` has another user: neg_9{{$}}
func.func @statistics_read_elsewhere(%x: !x, %w: !w) -> (!x, !row) {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  %other = cermet.neg %mean : !row loc("neg_9")
  return %y, %other : !x, !row
}

// MISS: near miss of rms_norm at mul_2: inner value `rsqrt_1` is returned by the function{{$}}
func.func @inner_returned(%x: !x, %w: !w) -> (!x, !row) {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y, %root : !x, !row
}

// The cast of x is squared, changed, then scaled.
// MISS: near miss of rms_norm at mul_2: inner value `to_1` is written in place by `add__1`{{$}}
func.func @cast_written_in_place(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %changed = cermet.opaque "add_"(%wide) {effect = "write", versions = 1 : i64} : (!wide) -> !wide loc("add__1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %changed, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// The call returns its target beside the new version.
// MISS: near miss of rms_norm at mul_2: inner value `to_1` is written in place by `add__1`{{$}}
func.func @cast_written_by_a_call_that_returns_it(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %changed:2 = cermet.opaque "add_"(%wide) {effect = "write", versions = 1 : i64} : (!wide) -> (!wide, !wide) loc("add__1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %changed#1, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: inner value `to_1` is written in place by `add__1`{{$}}
func.func @square_of_old_and_new(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %changed = cermet.opaque "add_"(%wide) {effect = "write", versions = 1 : i64} : (!wide) -> !wide loc("add__1")
  %square = cermet.mul %wide, %changed : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// The cast of x is changed before anything reads it.
// MISS: near miss of rms_norm at mul_2: inner value `to_1` is written in place by `add__1`{{$}}
func.func @cast_written_before(%x: !x, %w: !wwide) -> !wide {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %changed = cermet.opaque "add_"(%wide) {effect = "write", versions = 1 : i64} : (!wide) -> !wide loc("add__1")
  %square = cermet.mul %changed, %changed : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %changed, %scale : !wide loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// MISS: near miss of rms_norm at mul_2: inner value `to_1` is written in place by `add__1`{{$}}
func.func @cast_written_after(%x: !x, %w: !w) -> (!x, !wide) {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  %changed = cermet.opaque "add_"(%wide) {effect = "write", versions = 1 : i64} : (!wide) -> !wide loc("add__1")
  return %y, %changed : !x, !wide
}

// A view of the normalised value is changed: the write makes versions of both.
// MISS: near miss of rms_norm at mul_2: inner value `mul_1` is written in place by `add__1`{{$}}
func.func @view_written_in_place(%x: !x, %w: !w) -> (!x, tensor<?xf32, #cermet.symbols<["n"]>>) {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %view = cermet.reshape %normalised : !wide to tensor<?xf32, #cermet.symbols<["n"]>> loc("view_1")
  %parts:2 = cermet.opaque "add_"(%view, %normalised) {effect = "write", versions = 2 : i64} : (tensor<?xf32, #cermet.symbols<["n"]>>, !wide) -> (tensor<?xf32, #cermet.symbols<["n"]>>, !wide) loc("add__1")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y, %parts#0 : !x, tensor<?xf32, #cermet.symbols<["n"]>>
}

// MISS: near miss of rms_norm at mul_2: weight has shape [1, 64], expected [64]{{$}}
func.func @weight_of_rank_2(%x: !x, %w: tensor<1x64xbf16>) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : tensor<1x64xbf16> to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: weight has shape [1], expected [64]{{$}}
func.func @scalar_weight(%x: !x, %w: tensor<1xbf16>) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : tensor<1xbf16> to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: weight has shape [r0, 64], expected [64]{{$}}
func.func @weight_of_every_row(%x: !x, %weights: !x) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the normalised value is multiplied by a constant, expected a weight{{$}}
func.func @constant_weight(%x: !x) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.constant 2.0 : !x
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at to_2: the normalised value is not multiplied by a weight{{$}}
func.func @no_weight(%x: !x) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  return %rounded : !x
}

// MISS: near miss of rms_norm at mul_2: the reciprocal root scales `{{.*}}`, expected the value that is squared, `to_1`{{$}}
func.func @other_value_scaled(%x: !x, %other: !wide, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %other, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the normalised value is rounded to f16 before it meets the weight, expected bf16 (x's type){{$}}
func.func @rounded_to_another_type(%x: !x, %w: tensor<64xf16>) -> tensor<?x64xf16, #cermet.symbols<["r0"]>> {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to tensor<?x64xf16, #cermet.symbols<["r0"]>> loc("to_2")
  %weights = cermet.broadcast %w : tensor<64xf16> to tensor<?x64xf16, #cermet.symbols<["r0"]>> loc("mul_2")
  %y = cermet.mul %weights, %rounded : tensor<?x64xf16, #cermet.symbols<["r0"]>> loc("mul_2")
  return %y : tensor<?x64xf16, #cermet.symbols<["r0"]>>
}

// MISS: near miss of rms_norm at mul_2: dtype f64 is not supported{{$}}
func.func @wider_product(%x: !x, %w: !w) -> tensor<?x64xf64, #cermet.symbols<["r0"]>> {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %again = cermet.cast %rounded : !x to tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("to_3")
  %wider = cermet.cast %w : !w to tensor<64xf64> loc("to_4")
  %weights = cermet.broadcast %wider : tensor<64xf64> to tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("mul_2")
  %y = cermet.mul %weights, %again : tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("mul_2")
  return %y : tensor<?x64xf64, #cermet.symbols<["r0"]>>
}

// MISS: near miss of rms_norm at mul_2: the last dimension of x has stride 2, expected stride 1{{$}}
func.func @strided(%x: !x {cermet.strides = array<i64: 128, 2>}, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the last dimension of weight has an unknown stride, expected stride 1{{$}}
func.func @strided_weight(%x: !x {cermet.strides = array<i64: 128, 1>}, %w: !w {cermet.strides = array<i64: -1>}) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the last dimension of x is the symbol c, expected a number{{$}}
func.func @symbolic_columns(%x: tensor<?x?xbf16, #cermet.symbols<["r0", "c"]>>, %w: tensor<?xbf16, #cermet.symbols<["c"]>>) -> tensor<?x?xbf16, #cermet.symbols<["r0", "c"]>> {
  %wide = cermet.cast %x : tensor<?x?xbf16, #cermet.symbols<["r0", "c"]>> to tensor<?x?xf32, #cermet.symbols<["r0", "c"]>> loc("to_1")
  %square = cermet.mul %wide, %wide : tensor<?x?xf32, #cermet.symbols<["r0", "c"]>> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<?x?xf32, #cermet.symbols<["r0", "c"]>> to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to tensor<?x?xf32, #cermet.symbols<["r0", "c"]>> loc("mul_1")
  %normalised = cermet.mul %wide, %scale : tensor<?x?xf32, #cermet.symbols<["r0", "c"]>> loc("mul_1")
  %rounded = cermet.cast %normalised : tensor<?x?xf32, #cermet.symbols<["r0", "c"]>> to tensor<?x?xbf16, #cermet.symbols<["r0", "c"]>> loc("to_2")
  %weights = cermet.broadcast %w : tensor<?xbf16, #cermet.symbols<["c"]>> to tensor<?x?xbf16, #cermet.symbols<["r0", "c"]>> loc("mul_2")
  %y = cermet.mul %weights, %rounded : tensor<?x?xbf16, #cermet.symbols<["r0", "c"]>> loc("mul_2")
  return %y : tensor<?x?xbf16, #cermet.symbols<["r0", "c"]>>
}

// MISS: near miss of rms_norm at mul_2: x has rank 1, expected 2 to 5{{$}}
func.func @one_row(%x: !wwide, %w: !wwide) -> !wwide {
  %square = cermet.mul %x, %x : !wwide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wwide to tensor<1xf32> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<1xf32>
  %mean = cermet.div %sum, %columns : tensor<1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<1xf32>
  %variance = cermet.add %mean, %eps : tensor<1xf32> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<1xf32> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<1xf32> to !wwide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wwide loc("mul_1")
  %y = cermet.mul %w, %normalised : !wwide loc("mul_2")
  return %y : !wwide
}

// The cast belongs to the frontend's node mul_2, which would go: nobody could hand its result over.
// MISS: near miss of rms_norm at mul_2: weight is a cast from bf16 to f32 that `mul_2` itself makes, expected a value of the graph{{$}}
func.func @promoted_in_the_product(%x: !x, %w: !w) -> !wide {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %again = cermet.cast %rounded : !x to !wide loc("to_3")
  %wider = cermet.cast %w : !w to !wwide loc("mul_2")
  %weights = cermet.broadcast %wider : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %again : !wide loc("mul_2")
  return %y : !wide
}

// ImageGPT.
// MISS: near miss of rms_norm at mul_2: x is divided by a square root, expected it multiplied by the reciprocal root: they round differently{{$}}
func.func @divided_by_root(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.sqrt %variance : !row loc("sqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("div_1")
  %normalised = cermet.div %wide, %scale : !wide loc("div_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: x is divided by a square root, expected it multiplied by the reciprocal root: they round differently{{$}}
func.func @reciprocal_of_root(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %deviation = cermet.sqrt %variance : !row loc("sqrt_1")
  %one = cermet.constant 1.0 : !row
  %root = cermet.div %one, %deviation : !row loc("reciprocal_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: x is divided by a square root, expected it multiplied by the reciprocal root: they round differently{{$}}
func.func @divided_by_power(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %half = cermet.constant 0.5 : !row
  %root = cermet.pow %variance, %half : !row loc("pow_2")
  %scale = cermet.broadcast %root : !row to !wide loc("div_1")
  %normalised = cermet.div %wide, %scale : !wide loc("div_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// MISS: near miss of rms_norm at mul_2: the sum of squares is multiplied by 1 / 96, expected it divided by 96 (columns of x): they round differently{{$}}
func.func @factor_that_is_not_exact(%x: !n, %w: tensor<96xbf16>) -> !n {
  %wide = cermet.cast %x : !n to !nwide loc("to_1")
  %square = cermet.mul %wide, %wide : !nwide loc("pow_1")
  %sum = cermet.reduce_sum %square : !nwide to !row loc("mean_1")
  %columns = cermet.constant 0.010416666666666666 : !row
  %mean = cermet.mul %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !nwide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !nwide loc("mul_1")
  %rounded = cermet.cast %normalised : !nwide to !n loc("to_2")
  %weights = cermet.broadcast %w : tensor<96xbf16> to !n loc("mul_2")
  %y = cermet.mul %weights, %rounded : !n loc("mul_2")
  return %y : !n
}

// Mamba 2 normalises groups of columns.
// MISS: near miss of rms_norm at mul_2: the normalised value is reshaped from [2, 4, 16] to [2, 64], expected its last dimension kept{{$}}
func.func @weight_of_merged_groups(%x: tensor<2x64xf32>, %w: !wwide) -> tensor<2x64xf32> {
  %groups = cermet.reshape %x : tensor<2x64xf32> to tensor<2x4x16xf32> loc("view_1")
  %square = cermet.mul %groups, %groups : tensor<2x4x16xf32> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<2x4x16xf32> to tensor<2x4x1xf32> loc("mean_1")
  %columns = cermet.constant 16.0 : tensor<2x4x1xf32>
  %mean = cermet.div %sum, %columns : tensor<2x4x1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<2x4x1xf32>
  %variance = cermet.add %mean, %eps : tensor<2x4x1xf32> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<2x4x1xf32> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<2x4x1xf32> to tensor<2x4x16xf32> loc("mul_1")
  %normalised = cermet.mul %groups, %scale : tensor<2x4x16xf32> loc("mul_1")
  %merged = cermet.reshape %normalised : tensor<2x4x16xf32> to tensor<2x64xf32> loc("view_2")
  %weights = cermet.broadcast %w : !wwide to tensor<2x64xf32> loc("mul_2")
  %y = cermet.mul %weights, %merged : tensor<2x64xf32> loc("mul_2")
  return %y : tensor<2x64xf32>
}

// MISS: near miss of rms_norm at mul_2: x has shape [2, 3, 64], the product with the weight [6, 64], expected one shape{{$}}
func.func @other_rows_at_the_end(%x: !a, %w: !w) -> tensor<6x64xbf16> {
  %wide = cermet.cast %x : !a to !awide loc("to_1")
  %square = cermet.mul %wide, %wide : !awide loc("pow_1")
  %sum = cermet.reduce_sum %square : !awide to !arow loc("mean_1")
  %columns = cermet.constant 64.0 : !arow
  %mean = cermet.div %sum, %columns : !arow loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !arow
  %variance = cermet.add %mean, %eps : !arow loc("add_1")
  %root = cermet.rsqrt %variance : !arow loc("rsqrt_1")
  %scale = cermet.broadcast %root : !arow to !awide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !awide loc("mul_1")
  %rounded = cermet.cast %normalised : !awide to !a loc("to_2")
  %merged = cermet.reshape %rounded : !a to tensor<6x64xbf16> loc("view_1")
  %weights = cermet.broadcast %w : !w to tensor<6x64xbf16> loc("mul_2")
  %y = cermet.mul %weights, %merged : tensor<6x64xbf16> loc("mul_2")
  return %y : tensor<6x64xbf16>
}

// MISS: near miss of rms_norm at mul_2: the reciprocal root of shape [1, 64] is broadcast to [64, 64], expected one number a row{{$}}
func.func @root_of_other_rows(%x: tensor<64x64xf32>, %w: !wwide) -> tensor<64x64xf32> {
  %square = cermet.mul %x, %x : tensor<64x64xf32> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<64x64xf32> to tensor<64x1xf32> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<64x1xf32>
  %mean = cermet.div %sum, %columns : tensor<64x1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<64x1xf32>
  %variance = cermet.add %mean, %eps : tensor<64x1xf32> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<64x1xf32> loc("rsqrt_1")
  %row = cermet.reshape %root : tensor<64x1xf32> to tensor<1x64xf32> loc("view_1")
  %scale = cermet.broadcast %row : tensor<1x64xf32> to tensor<64x64xf32> loc("mul_1")
  %normalised = cermet.mul %x, %scale : tensor<64x64xf32> loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to tensor<64x64xf32> loc("mul_2")
  %y = cermet.mul %weights, %normalised : tensor<64x64xf32> loc("mul_2")
  return %y : tensor<64x64xf32>
}

// Two norms go together or not at all.
// MISS: near miss of rms_norm at mul_2: inner value `mean_1` has another user: neg_9{{$}}
func.func @one_statistic_returned(%x: !x, %w: !w, %v: !w) -> (!x, !x, !row) {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  %small = cermet.constant 1.0e-6 : !row
  %variance_b = cermet.add %mean, %small : !row loc("add_2")
  %root_b = cermet.rsqrt %variance_b : !row loc("rsqrt_2")
  %scale_b = cermet.broadcast %root_b : !row to !wide loc("mul_3")
  %normalised_b = cermet.mul %wide, %scale_b : !wide loc("mul_3")
  %rounded_b = cermet.cast %normalised_b : !wide to !x loc("to_3")
  %weights_b = cermet.broadcast %v : !w to !x loc("mul_4")
  %z = cermet.mul %weights_b, %rounded_b : !x loc("mul_4")
  %other = cermet.neg %mean : !row loc("neg_9")
  return %y, %z, %other : !x, !x, !row
}
