// Values by class: reals are computed in f32, integers in 64 bits, booleans as such. What is packed in memory becomes one
// of these when it is read, and is rounded or wrapped to its type again when it is stored.

typedef int i32;
typedef short i16;
typedef signed char i8;
typedef unsigned char u8;
struct i1 {
  u8 byte; // true unless 0
};

template <class T> DEVICE i64 to_integer(T value) { return value; }
DEVICE bool to_bool(i1 value) { return value.byte != 0; }

template <class T> DEVICE T from_integer(i64 value) { return T(value); }
template <class T> DEVICE T from_bool(bool value) { return {u8(value ? 1 : 0)}; }

// Wraps to a narrower integer type.
template <class T> DEVICE i64 wrap_to(i64 value) { return i64(T(value)); }

// Toward zero; NaN and infinities give 0, what 64 bits do not hold wraps.
DEVICE i64 real_to_integer(float value) {
  if (!(absolute(value) < float_from_bits(0x7f800000u)))
    return 0;
  if (absolute(value) < 9223372036854775808.0f)
    return i64(value);
  const u64 size = u64(remainder_of(absolute(value), 18446744073709551616.0f));
  return i64(value < 0 ? u64(0) - size : size);
}

// An integer as an f32 that rounds to sixteen bits as the integer itself would: where it is not exact its last bit is set.
DEVICE float integer_to_sticky(i64 value) {
  const float truncated = truncate_to_float(value);
  return i64(truncated) == value ? truncated : float_from_bits(bits_from_float(truncated) | 1u);
}

// Elements whose columns are `step` elements apart.
template <class T, int Count> DEVICE Vector<T, Count> load_strided(const char* base, i64 offset, int column, i64 step) {
  Vector<T, Count> result;
#pragma unroll
  for (int i = 0; i < Count; ++i)
    result.at[i] = load_vector<T, 1>(base, offset + (column + i) * step).at[0];
  return result;
}
//===--- Functions of reals -----------------------------------------------------------------------------------------===//

// As the prelude says: `exact` is within a few ulp of f32, `fast` is enough for a result of sixteen bits.

// By a number that a row has, of which the scale and the reciprocal are computed once. The scale keeps both normal: of
// 2^126 on the reciprocal would be 0, and below the smallest normal number infinite.
DEVICE float fast_row_divide(float x, float y) {
  const float size = absolute(y), scale = size > 0x1p64f ? 0x1p-64f : size < 0x1p-64f ? 0x1p64f : 1.0f;
  return x * scale * fast_reciprocal(y * scale);
}
DEVICE float relu(float x) { return maximum(x, 0.0f); }
// log(1 + e^x), of which nothing overflows or is lost in the sum.
DEVICE float exact_softplus(float x) { return relu(x) + logarithm_of_1_plus(exact_exp(-absolute(x))); }
DEVICE float fast_softplus(float x) {
  const float u = fast_exp(-absolute(x));
  return relu(x) + (u < 0.02f ? u * (1.0f - u * (0.5f - 0.33333333f * u)) : fast_logarithm(1.0f + u));
}
// 1 - erf(x) for x >= 0, within 1e-6 of itself and, far out, what e^(-x^2) loses: that times a polynomial in
// 1 / (1 + 0.375 x), fitted up to 10.
DEVICE float fast_erfc(float x) {
  const float t = fast_reciprocal(1.0f + 0.375f * x);
  float p = -0.13509349f * t + 0.38792937f;
  p = p * t - 0.12958546f;
  p = p * t + 0.28305312f;
  p = p * t + 0.16666777f;
  p = p * t + 0.21568857f;
  p = p * t + 0.2113395f;
  return p * t * fast_exp_normal(-x * x);
}
DEVICE float exact_erf(float x) { return error_function(x); }
// Near 0, where 1 - (1 - erf) would lose digits, the start of the series, fitted up to 0.5.
DEVICE float fast_erf(float x) {
  const float square = x * x, far = 1.0f - fast_erfc(absolute(x));
  const float near = x * (1.1283790f + square * (-0.37610734f + square * (0.11245624f - 0.02438915f * square)));
  return square < 0.25f ? near : x < 0.0f ? -far : far;
}
DEVICE float exact_gelu(float x) { return x * normal_cdf(x); }
// x where x > 0, less |x| times the other side of the distribution; that is infinity times 0 far out.
DEVICE float fast_gelu(float x) {
  const float size = absolute(x), rest = 0.5f * size * fast_erfc(0.70710678f * size);
  return x > 100.0f ? x : relu(x) - rest;
}
// x / 2 (1 + tanh(u)) = x sigmoid(2 u), which loses nothing where tanh(u) is near -1.
DEVICE float gelu_argument(float x) { return 1.5957691f * x * (1.0f + 0.044715f * x * x); }
DEVICE float exact_gelu_tanh(float x) { return x * exact_sigmoid(gelu_argument(x)); }
DEVICE float fast_gelu_tanh(float x) { return x * fast_sigmoid(gelu_argument(x)); }

//===--- Columns by number ------------------------------------------------------------------------------------------===//

// Compares with every column's number as `number` does: one that no column has becomes the nearest that none has.
template <int Columns> DEVICE int nearest_column(i64 number) {
  return number < 0 ? -1 : number < Columns ? int(number) : Columns;
}
template <int Columns> DEVICE bool is_column(i64 number) { return u64(number) < u64(Columns); }

//===--- A running maximum and the sum of exponentials below it -----------------------------------------------------===//

// Where such a maximum starts: finite, so that a row's infinities among finite values are no matter of order. A sum is 0
// only where nothing was above it: where a row is -inf all over.
DEVICE float lowest_float() { return float_from_bits(0xff7fffffu); }
DEVICE float running_maximum(float maximum, float sum) { return sum == 0.0f ? float_from_bits(0xff800000u) : maximum; }
DEVICE float running_sum(float sum) { return sum == 0.0f ? float_from_bits(0x7fc00000u) : sum; }
