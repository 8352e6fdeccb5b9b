// Every form of a root-mean-square norm that becomes cermet.rms_norm, and that nothing else of it is left.
// RUN: cermet-opt %s -cermet-raise 2>&1 | FileCheck %s --implicit-check-not="near miss"

!x = tensor<?x64xbf16, #cermet.symbols<["r0"]>>
!wide = tensor<?x64xf32, #cermet.symbols<["r0"]>>
!row = tensor<?x1xf32, #cermet.symbols<["r0"]>>
!w = tensor<64xbf16>
!wwide = tensor<64xf32>
!a = tensor<2x3x64xbf16>
!awide = tensor<2x3x64xf32>
!arow = tensor<2x3x1xf32>

// Llama: rounded to x's type before the weight.
// CHECK-LABEL: func.func @llama_bf16(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @llama_bf16(%x: !x, %w: !w) -> !x {
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

// In f32 the casts are absent, and there is nothing to round.
// CHECK-LABEL: func.func @llama_f32(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @llama_f32(%x: !wide, %w: !wwide) -> !wide {
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wide loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// The other order of every operand.
// CHECK-LABEL: func.func @swapped(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @swapped(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %eps, %mean : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %scale, %wide : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %rounded, %weights : !x loc("mul_2")
  return %y : !x
}

// A weight in f32 promotes the product: the rounded value is cast up again.
// CHECK-LABEL: func.func @wide_weight(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @wide_weight(%x: !x, %w: !wwide) -> !wide {
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
  %promoted = cermet.cast %rounded : !x to !wide loc("mul_2")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %promoted : !wide loc("mul_2")
  return %y : !wide
}

// A weight in bf16 is promoted to meet x in f32; here the cast comes first.
// CHECK-LABEL: func.func @narrow_weight(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @narrow_weight(%x: !wide, %w: !w) -> !wide {
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wide loc("mul_1")
  %promoted = cermet.cast %w : !w to !wwide loc("mul_2")
  %weights = cermet.broadcast %promoted : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// CHECK-LABEL: func.func @narrow_weight_cast_last(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @narrow_weight_cast_last(%x: !wide, %w: !w) -> !wide {
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wide loc("mul_1")
  %expanded = cermet.broadcast %w : !w to !x loc("mul_2")
  %weights = cermet.cast %expanded : !x to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// A product in f32 of two values in bf16 is no promotion: the weight is what was cast.
// CHECK-LABEL: func.func @explicitly_wide_weight(
// CHECK-NEXT: %[[W:.*]] = cermet.cast %arg1 : tensor<64xbf16> to tensor<64xf32>
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %[[W]] {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @explicitly_wide_weight(%x: !x, %w: !w) -> !wide {
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
  %wider = cermet.cast %w : !w to !wwide loc("to_4")
  %weights = cermet.broadcast %wider : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %again : !wide loc("mul_2")
  return %y : !wide
}

// Gemma: everything in f32, an offset of one on the weight, one rounding at the end.
// CHECK-LABEL: func.func @gemma_bf16(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, weight_offset = 1.000000e+00 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @gemma_bf16(%x: !x, %w: !w) -> !x {
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
  %w32 = cermet.cast %w : !w to !wwide loc("to_2")
  %one = cermet.constant 1.0 : !wwide
  %offset = cermet.add %one, %w32 : !wwide loc("add_2")
  %weights = cermet.broadcast %offset : !wwide to !wide loc("mul_2")
  %product = cermet.mul %normalised, %weights : !wide loc("mul_2")
  %y = cermet.cast %product : !wide to !x loc("type_as_1")
  return %y : !x
}

// The offset after the broadcast.
// CHECK-LABEL: func.func @gemma_f32(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, weight_offset = 1.000000e+00 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @gemma_f32(%x: !wide, %w: !wwide) -> !wide {
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wide loc("mul_1")
  %one = cermet.constant 1.0 : !wide
  %expanded = cermet.broadcast %w : !wwide to !wide loc("add_2")
  %weights = cermet.add %expanded, %one : !wide loc("add_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// CHECK-LABEL: func.func @no_offset_one_rounding(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @no_offset_one_rounding(%x: !x, %w: !w) -> !x {
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
  %w32 = cermet.cast %w : !w to !wwide loc("to_2")
  %weights = cermet.broadcast %w32 : !wwide to !wide loc("mul_2")
  %product = cermet.mul %normalised, %weights : !wide loc("mul_2")
  %y = cermet.cast %product : !wide to !x loc("to_3")
  return %y : !x
}

// The product is read before it is rounded: the norm ends there.
// CHECK-LABEL: func.func @product_stays_wide(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: %[[Z:.*]] = cermet.cast %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Z]], %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @product_stays_wide(%x: !x, %w: !w) -> (!x, !wide) {
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
  %w32 = cermet.cast %w : !w to !wwide loc("to_2")
  %weights = cermet.broadcast %w32 : !wwide to !wide loc("mul_2")
  %product = cermet.mul %normalised, %weights : !wide loc("mul_2")
  %y = cermet.cast %product : !wide to !x loc("to_3")
  return %y, %product : !x, !wide
}

// CHECK-LABEL: func.func @mean_by_multiplication(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @mean_by_multiplication(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 0.015625 : !row
  %mean = cermet.mul %columns, %sum : !row loc("mean_1")
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

// Numbers that arrive as scalars.
// CHECK-LABEL: func.func @scalar_constants(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = {{9.9999999999999995E-7|1.000000e-06}} : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @scalar_constants(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %number = cermet.constant 64.0 : tensor<f32>
  %columns = cermet.broadcast %number : tensor<f32> to !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %small = cermet.constant 1.0e-6 : tensor<f64>
  %narrow = cermet.cast %small : tensor<f64> to tensor<f32>
  %eps = cermet.broadcast %narrow : tensor<f32> to !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// x is cast as often as the program says so; no pass has merged the casts.
// CHECK-LABEL: func.func @repeated_casts(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @repeated_casts(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %again = cermet.cast %x : !x to !wide loc("to_3")
  %square = cermet.mul %wide, %again : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %oncemore = cermet.cast %x : !x to !wide loc("mul_1")
  %normalised = cermet.mul %oncemore, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// CHECK-LABEL: func.func @repeated_input(
// CHECK-NEXT: %[[X:.*]] = cermet.neg %arg0 : tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %[[X]], %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @repeated_input(%a: !wide, %w: !wwide) -> !wide {
  %x = cermet.neg %a : !wide loc("neg_1")
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %again = cermet.neg %a : !wide loc("neg_2")
  %normalised = cermet.mul %again, %scale : !wide loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// The cast of the input stays for its other reader.
// CHECK-LABEL: func.func @cast_read_elsewhere(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1
// CHECK-NEXT: %[[C:.*]] = cermet.cast %arg0
// CHECK-NEXT: %[[E:.*]] = cermet.exp %[[C]]
// CHECK-NEXT: return %[[Y]], %[[E]]
func.func @cast_read_elsewhere(%x: !x, %w: !w) -> (!x, !wide) {
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
  %other = cermet.exp %wide : !wide loc("exp_1")
  return %y, %other : !x, !wide
}

// One normalised value under two weights.
// CHECK-LABEL: func.func @two_weights(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight}
// CHECK-NEXT: %[[Z:.*]] = cermet.rms_norm %arg0, %arg2 {eps = 1.000000e-05 : f64, round_before_weight}
// CHECK-NEXT: return %[[Y]], %[[Z]]
func.func @two_weights(%x: !x, %w: !w, %v: !w) -> (!x, !x) {
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
  %others = cermet.broadcast %v : !w to !x loc("mul_3")
  %z = cermet.mul %rounded, %others : !x loc("mul_3")
  return %y, %z : !x, !x
}

// A norm of each head: four dimensions, static rows.
// CHECK-LABEL: func.func @heads(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<2x8x16x128xf32>, tensor<128xf32> to tensor<2x8x16x128xf32>
// CHECK-NEXT: return %[[Y]]
func.func @heads(%x: tensor<2x8x16x128xf32>, %w: tensor<128xf32>) -> tensor<2x8x16x128xf32> {
  %square = cermet.mul %x, %x : tensor<2x8x16x128xf32> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<2x8x16x128xf32> to tensor<2x8x16x1xf32> loc("mean_1")
  %columns = cermet.constant 128.0 : tensor<2x8x16x1xf32>
  %mean = cermet.div %sum, %columns : tensor<2x8x16x1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<2x8x16x1xf32>
  %variance = cermet.add %mean, %eps : tensor<2x8x16x1xf32> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<2x8x16x1xf32> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<2x8x16x1xf32> to tensor<2x8x16x128xf32> loc("mul_1")
  %normalised = cermet.mul %x, %scale : tensor<2x8x16x128xf32> loc("mul_1")
  %weights = cermet.broadcast %w : tensor<128xf32> to tensor<2x8x16x128xf32> loc("mul_2")
  %y = cermet.mul %weights, %normalised : tensor<2x8x16x128xf32> loc("mul_2")
  return %y : tensor<2x8x16x128xf32>
}

// A reader that nobody reads is no reader.
// CHECK-LABEL: func.func @unread_reader(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @unread_reader(%x: !x, %w: !w) -> !x {
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
  %unread = cermet.neg %normalised : !wide loc("neg_1")
  return %y : !x
}

// x is written after it was read: the norm stands before the write.
// CHECK-LABEL: func.func @input_written_later(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: %[[N:.*]] = cermet.opaque "add_"(%arg0)
// CHECK-NEXT: return %[[Y]], %[[N]]
func.func @input_written_later(%x: !x, %w: !w) -> (!x, !x) {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %new = cermet.opaque "add_"(%x) {effect = "write", versions = 1 : i64} : (!x) -> !x loc("add_")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y, %new : !x, !x
}

// A layer norm without its bias is a norm of what is centred.
// CHECK-LABEL: func.func @centred(
// CHECK-NEXT: {{.*}}cermet.reduce_sum
// CHECK-NEXT: {{.*}}cermet.constant
// CHECK-NEXT: {{.*}}cermet.div
// CHECK-NEXT: {{.*}}cermet.broadcast
// CHECK-NEXT: %[[D:.*]] = cermet.sub %arg0
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %[[D]], %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @centred(%x: !wide, %w: !wwide) -> !wide {
  %total = cermet.reduce_sum %x : !wide to !row loc("mean_0")
  %many = cermet.constant 64.0 : !row
  %centre = cermet.div %total, %many : !row loc("mean_0")
  %c = cermet.broadcast %centre : !row to !wide loc("sub_0")
  %d = cermet.sub %x, %c : !wide loc("sub_0")
  %square = cermet.mul %d, %d : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %d, %scale : !wide loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// Not a norm, and nothing to report.
// CHECK-LABEL: func.func @unrelated(
// CHECK-NEXT: %[[Y:.*]] = cermet.rsqrt %arg0
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @unrelated(%x: !wide) -> !wide {
  %y = cermet.rsqrt %x : !wide loc("rsqrt_1")
  return %y : !wide
}

// `x.pow(2)` as a power.
// CHECK-LABEL: func.func @square_by_pow(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @square_by_pow(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %two = cermet.constant 2.0 : !wide
  %square = cermet.pow %wide, %two : !wide loc("pow_1")
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

// Gemma 3n and 4: `pow(mean + eps, -0.5)` is a reciprocal root in one rounding.
// CHECK-LABEL: func.func @root_by_pow(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @root_by_pow(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %two = cermet.constant 2.0 : !wide
  %square = cermet.pow %wide, %two : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %exponent = cermet.constant -0.5 : !row
  %root = cermet.pow %variance, %exponent : !row loc("pow_2")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %w32 = cermet.cast %w : !w to !wwide loc("float_2")
  %weights = cermet.broadcast %w32 : !wwide to !wide loc("mul_2")
  %product = cermet.mul %normalised, %weights : !wide loc("mul_2")
  %y = cermet.cast %product : !wide to !x loc("type_as_1")
  return %y : !x
}

// torch.nn.functional.rms_norm as ATen decomposes it: the product promotes the weight, the end is cast back; eps is
// that of f32 where none was given.
// CHECK-LABEL: func.func @functional_rms_norm(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = {{.*}} : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @functional_rms_norm(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %two = cermet.constant 2.0 : !wide
  %square = cermet.pow %wide, %two : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.1920928955078125e-07 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %promoted = cermet.cast %w : !w to !wwide loc("mul_2")
  %weights = cermet.broadcast %promoted : !wwide to !wide loc("mul_2")
  %product = cermet.mul %normalised, %weights : !wide loc("mul_2")
  %y = cermet.cast %product : !wide to !x loc("type_as_1")
  return %y : !x
}

// T5: the statistics of a copy in f32, the product with x promoted by itself.
// CHECK-LABEL: func.func @t5(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @t5(%x: !x, %w: !w) -> !x {
  %statistics = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %statistics, %statistics : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %wide = cermet.cast %x : !x to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// T5 with a weight in f32: nothing is rounded.
// CHECK-LABEL: func.func @t5_wide_weight(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @t5_wide_weight(%x: !x, %w: !wwide) -> !wide {
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
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// An offset that is added in bf16 has a rounding of its own: the sum is the weight.
// CHECK-LABEL: func.func @offset_in_bf16(
// CHECK-NEXT: %[[O:.*]] = cermet.constant 1.000000e+00
// CHECK-NEXT: %[[W:.*]] = cermet.add %[[O]], %arg1 : tensor<64xbf16>
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %[[W]] {eps = 1.000000e-05 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @offset_in_bf16(%x: !x, %w: !w) -> !x {
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
  %one = cermet.constant 1.0 : !w
  %offset = cermet.add %one, %w : !w loc("add_2")
  %w32 = cermet.cast %offset : !w to !wwide loc("float_2")
  %weights = cermet.broadcast %w32 : !wwide to !wide loc("mul_2")
  %product = cermet.mul %normalised, %weights : !wide loc("mul_2")
  %y = cermet.cast %product : !wide to !x loc("type_as_1")
  return %y : !x
}

// Kimi: the norm stays in f32 for the gate that comes behind it.
// CHECK-LABEL: func.func @gated_behind(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: %[[G:.*]] = cermet.cast %arg2
// CHECK-NEXT: %[[Z:.*]] = cermet.glu %[[G]], %[[Y]] : tensor<?x64xf32, #cermet.symbols<["r0"]>>
func.func @gated_behind(%x: !x, %w: !w, %g: !x) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %gate = cermet.cast %g : !x to !wide loc("to_3")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %w32 = cermet.cast %w : !w to !wwide loc("to_2")
  %weights = cermet.broadcast %w32 : !wwide to !wide loc("mul_2")
  %product = cermet.mul %weights, %normalised : !wide loc("mul_2")
  %act = cermet.silu %gate : !wide loc("silu_1")
  %gated = cermet.mul %product, %act : !wide loc("mul_3")
  %y = cermet.cast %gated : !wide to !x loc("to_4")
  return %y : !x
}

// The mean without its dimension, which `unsqueeze` puts back behind the root.
// CHECK-LABEL: func.func @mean_without_keepdim(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @mean_without_keepdim(%x: !x, %w: !w) -> !x {
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %quotient = cermet.div %sum, %columns : !row loc("mean_1")
  %mean = cermet.reshape %quotient : !row to tensor<?xf32, #cermet.symbols<["r0"]>> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<?xf32, #cermet.symbols<["r0"]>>
  %variance = cermet.add %mean, %eps : tensor<?xf32, #cermet.symbols<["r0"]>> loc("add_1")
  %reciprocal = cermet.rsqrt %variance : tensor<?xf32, #cermet.symbols<["r0"]>> loc("rsqrt_1")
  %root = cermet.reshape %reciprocal : tensor<?xf32, #cermet.symbols<["r0"]>> to !row loc("unsqueeze_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// A weight with leading dimensions of 1.
// CHECK-LABEL: func.func @weight_of_rank_two(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]] : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
func.func @weight_of_rank_two(%x: !x, %w: !w) -> !x {
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
  %view = cermet.reshape %w : !w to tensor<1x64xbf16> loc("view_1")
  %weights = cermet.broadcast %view : tensor<1x64xbf16> to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// The statistics of a view in other rows.
// CHECK-LABEL: func.func @statistics_of_other_rows(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<2x3x64xbf16>, tensor<64xbf16> to tensor<2x3x64xbf16>
// CHECK-NEXT: return %[[Y]] : tensor<2x3x64xbf16>
func.func @statistics_of_other_rows(%x: !a, %w: !w) -> !a {
  %wide = cermet.cast %x : !a to !awide loc("to_1")
  %view = cermet.reshape %wide : !awide to tensor<6x64xf32> loc("view_1")
  %square = cermet.mul %view, %view : tensor<6x64xf32> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<6x64xf32> to tensor<6x1xf32> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<6x1xf32>
  %mean = cermet.div %sum, %columns : tensor<6x1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<6x1xf32>
  %variance = cermet.add %mean, %eps : tensor<6x1xf32> loc("add_1")
  %reciprocal = cermet.rsqrt %variance : tensor<6x1xf32> loc("rsqrt_1")
  %root = cermet.reshape %reciprocal : tensor<6x1xf32> to !arow loc("view_2")
  %scale = cermet.broadcast %root : !arow to !awide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !awide loc("mul_1")
  %rounded = cermet.cast %normalised : !awide to !a loc("to_2")
  %weights = cermet.broadcast %w : !w to !a loc("mul_2")
  %y = cermet.mul %weights, %rounded : !a loc("mul_2")
  return %y : !a
}

// Rows that are merged inside and come back before the end.
// CHECK-LABEL: func.func @other_rows_inside(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<2x3x64xbf16>, tensor<64xbf16> to tensor<2x3x64xbf16>
// CHECK-NEXT: return %[[Y]] : tensor<2x3x64xbf16>
func.func @other_rows_inside(%x: !a, %w: !w) -> !a {
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
  %product = cermet.mul %weights, %merged : tensor<6x64xbf16> loc("mul_2")
  %y = cermet.reshape %product : tensor<6x64xbf16> to !a loc("view_2")
  return %y : !a
}

// A norm of a view is a norm of the view.
// CHECK-LABEL: func.func @norm_of_a_view(
// CHECK-NEXT: %[[V:.*]] = cermet.reshape %arg0
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %[[V]], %arg1
// CHECK-NEXT: %[[Z:.*]] = cermet.reshape %[[Y]]
// CHECK-NEXT: return %[[Z]]
func.func @norm_of_a_view(%x: !a, %w: !w) -> !a {
  %view = cermet.reshape %x : !a to tensor<6x64xbf16> loc("view_1")
  %wide = cermet.cast %view : tensor<6x64xbf16> to tensor<6x64xf32> loc("to_1")
  %square = cermet.mul %wide, %wide : tensor<6x64xf32> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<6x64xf32> to tensor<6x1xf32> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<6x1xf32>
  %mean = cermet.div %sum, %columns : tensor<6x1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<6x1xf32>
  %variance = cermet.add %mean, %eps : tensor<6x1xf32> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<6x1xf32> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<6x1xf32> to tensor<6x64xf32> loc("mul_1")
  %normalised = cermet.mul %wide, %scale : tensor<6x64xf32> loc("mul_1")
  %rounded = cermet.cast %normalised : tensor<6x64xf32> to tensor<6x64xbf16> loc("to_2")
  %weights = cermet.broadcast %w : !w to tensor<6x64xbf16> loc("mul_2")
  %product = cermet.mul %weights, %rounded : tensor<6x64xbf16> loc("mul_2")
  %y = cermet.reshape %product : tensor<6x64xbf16> to !a loc("view_2")
  return %y : !a
}

// One mean of squares under two roots, as a pass that merges equal operations leaves it.
// CHECK-LABEL: func.func @shared_statistics(
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64, round_before_weight}
// CHECK-NEXT: %[[Z:.*]] = cermet.rms_norm %arg0, %arg2 {eps = {{.*}} : f64, round_before_weight}
// CHECK-NEXT: return %[[Y]], %[[Z]]
func.func @shared_statistics(%x: !x, %w: !w, %v: !w) -> (!x, !x) {
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
  return %y, %z : !x, !x
}
