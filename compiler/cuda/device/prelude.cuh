// The prelude: everything a skeleton needs from the machine, without a header but types.cuh. It is the only device text
// that the CPU tests replace (tests/simt/prelude.h declares the same names), so inline PTX and CUDA built-ins live here
// and nowhere else.
//
// Conventions: offsets are 64-bit and count elements; a thread's index is its linear index in the block; vectors are
// moved in pieces of at most 16 bytes and their address must be aligned to the piece.

#define DEVICE __device__ __forceinline__
// KERNEL(threads, resident blocks, entry's name, argument's type, function template to call)
#define KERNEL(threads, blocks, entry, Arguments, ...)                                                                 \
  extern "C" __global__ void __launch_bounds__(threads, blocks) entry(const __grid_constant__ Arguments arguments) {   \
    __VA_ARGS__(arguments);                                                                                            \
  }
#define SHARED __shared__

//===--- Narrow floats ----------------------------------------------------------------------------------------------===//

// For machines without instructions for floats of eight bits; defined in eight_bits.cuh, which follows.
DEVICE float float_from_e4m3(u32 bits);
DEVICE u32 e4m3_from_float(float value);
DEVICE u32 e5m2_from_float(float value);

DEVICE float to_float(float value) { return value; }
DEVICE float to_float(bf16 value) { return __uint_as_float(u32(value.bits) << 16); }
DEVICE float to_float(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
DEVICE float to_float(f8e4m3 value) {
#if __CUDA_ARCH__ >= 890
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(u16(value.bits)));
  return to_float(f16{u16(pair)});
#else
  return float_from_e4m3(value.bits);
#endif
}
// The upper half of an f16.
DEVICE float to_float(f8e5m2 value) { return to_float(f16{u16(value.bits << 8)}); }

// Round to nearest, ties to even. The conversions of two values are used for one: they run at the rate of arithmetic,
// those of one value at a quarter of it.
template <class T> DEVICE T from_float(float value);
template <> DEVICE float from_float<float>(float value) { return value; }
template <> DEVICE bf16 from_float<bf16>(float value) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
  return {u16(pair)};
}
template <> DEVICE f16 from_float<f16>(float value) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(value));
  return {u16(pair)};
}
template <> DEVICE f8e4m3 from_float<f8e4m3>(float value) {
#if __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return {(unsigned char)(pair)};
#else
  return {(unsigned char)(e4m3_from_float(value))};
#endif
}
template <> DEVICE f8e5m2 from_float<f8e5m2>(float value) {
#if __CUDA_ARCH__ >= 890
  u16 pair; // the instruction saturates: from halfway to the next power of two on it is infinity
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return {(unsigned char)(fabsf(value) >= 61440.0f ? (pair & 0x80) | 0x7c : pair)};
#else
  return {(unsigned char)(e5m2_from_float(value))};
#endif
}

template <class T> DEVICE float round_to(float value) { return to_float(from_float<T>(value)); }
template <> DEVICE float round_to<bf16>(float value) {
  u32 pair; // with the value in the upper half it is the float already
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value), "f"(0.0f));
  return __uint_as_float(pair);
}

DEVICE float float_from_bits(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 bits_from_float(float value) { return __float_as_uint(value); }
DEVICE float truncate_to_float(i64 value) { return __ll2float_rz(value); }

//===--- Vectors ----------------------------------------------------------------------------------------------------===//

template <int Bytes> struct Word;
template <> struct Word<1> {
  typedef unsigned char type;
};
template <> struct Word<2> {
  typedef u16 type;
};
template <> struct Word<4> {
  typedef u32 type;
};
template <> struct Word<8> {
  typedef uint2 type;
};
template <> struct Word<16> {
  typedef uint4 type;
};

template <class T, int Count> DEVICE void move_vector(char* target, const char* source) {
  constexpr int kBytes = Count * sizeof(T);
  constexpr int kPiece = kBytes < 16 ? kBytes : 16;
  typedef typename Word<kPiece>::type Piece;
#pragma unroll
  for (int i = 0; i < kBytes / kPiece; ++i)
    reinterpret_cast<Piece*>(target)[i] = reinterpret_cast<const Piece*>(source)[i];
}

template <class T, int Count> DEVICE Vector<T, Count> load_vector(const char* base, i64 offset) {
  Vector<T, Count> result;
  move_vector<T, Count>(reinterpret_cast<char*>(&result), base + offset * i64(sizeof(T)));
  return result;
}

template <class T, int Count> DEVICE void store_vector(char* base, i64 offset, const Vector<T, Count>& value) {
  move_vector<T, Count>(base + offset * i64(sizeof(T)), reinterpret_cast<const char*>(&value));
}

// The i-th element of a vector as a float. Of two in a word the upper one needs no shift.
template <class T, int Count> DEVICE float float_at(const Vector<T, Count>& value, int i) {
  return to_float(value.at[i]);
}
template <int Count> DEVICE float float_at(const Vector<bf16, Count>& value, int i) {
  if constexpr (Count == 1)
    return to_float(value.at[0]);
  else {
    const u32 word = reinterpret_cast<const u32*>(&value)[i / 2];
    return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
  }
}

// Rounds floats to a vector, two in one instruction where there is one for that.
template <class T> DEVICE u32 pair_from_floats(float low, float high);
template <> DEVICE u32 pair_from_floats<bf16>(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <> DEVICE u32 pair_from_floats<f16>(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// Two neighbouring elements in a word. Sums and products of sixteen-bit floats round once, as f32 rounded to them does:
// a product is exact in f32, and a sum that is not lies far from where the narrow type rounds the other way.
template <class T> struct Pair {
  u32 word;
};
template <class T> DEVICE Pair<T> pair_of(float low, float high) { return {pair_from_floats<T>(low, high)}; }
template <class T, int Count> DEVICE Pair<T> pair_at(const Vector<T, Count>& value, int i) {
  return {reinterpret_cast<const u32*>(&value)[i / 2]};
}
template <class T, int Count> DEVICE void set_pair(Vector<T, Count>& value, int i, Pair<T> pair) {
  reinterpret_cast<u32*>(&value)[i / 2] = pair.word;
}
template <class T> DEVICE Pair<T> swapped(Pair<T> pair) { return {__byte_perm(pair.word, 0, 0x1032)}; }
DEVICE float low(Pair<bf16> pair) { return __uint_as_float(pair.word << 16); }
DEVICE float high(Pair<bf16> pair) { return __uint_as_float(pair.word & 0xffff0000u); }
DEVICE float low(Pair<f16> pair) { return to_float(f16{u16(pair.word)}); }
DEVICE float high(Pair<f16> pair) { return to_float(f16{u16(pair.word >> 16)}); }
// x y + z of each; the words of 1, -1 and -0 twice. A product plus -0 is the product, with its sign.
DEVICE Pair<bf16> fused(Pair<bf16> x, Pair<bf16> y, Pair<bf16> z) {
  Pair<bf16> result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result.word) : "r"(x.word), "r"(y.word), "r"(z.word));
  return result;
}
DEVICE Pair<f16> fused(Pair<f16> x, Pair<f16> y, Pair<f16> z) {
  Pair<f16> result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result.word) : "r"(x.word), "r"(y.word), "r"(z.word));
  return result;
}
template <class T> DEVICE Pair<T> both_one();
template <> DEVICE Pair<bf16> both_one() { return {0x3f803f80u}; }
template <> DEVICE Pair<f16> both_one() { return {0x3c003c00u}; }
template <class T> DEVICE Pair<T> operator-(Pair<T> x) { return {x.word ^ 0x80008000u}; }
template <class T> DEVICE Pair<T> operator*(Pair<T> x, Pair<T> y) { return fused(x, y, Pair<T>{0x80008000u}); }
template <class T> DEVICE Pair<T> operator+(Pair<T> x, Pair<T> y) { return fused(x, both_one<T>(), y); }
template <class T> DEVICE Pair<T> operator-(Pair<T> x, Pair<T> y) { return fused(y, -both_one<T>(), x); }
template <class T> DEVICE Pair<T> absolute(Pair<T> x) { return {x.word & 0x7fff7fffu}; }
// Each from x where its condition holds, else from y.
template <class T> DEVICE Pair<T> chosen(bool low, bool high, Pair<T> x, Pair<T> y) {
  return {((low ? x : y).word & 0xffffu) | ((high ? x : y).word & 0xffff0000u)};
}

template <class T, int Count> DEVICE Vector<T, Count> vector_from_floats(const float (&values)[Count]) {
  Vector<T, Count> result;
  if constexpr (sizeof(T) == 2 && Count % 2 == 0) {
#pragma unroll
    for (int i = 0; i < Count; i += 2)
      reinterpret_cast<u32*>(&result)[i / 2] = pair_from_floats<T>(values[i], values[i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      result.at[i] = from_float<T>(values[i]);
  }
  return result;
}

// Hides from the compiler that a packed vector is what it was, so that it unpacks narrow values again in the next stage
// instead of carrying them through a reduction as two or four times the registers.
template <class T, int Count> DEVICE void keep_packed(Vector<T, Count>& value) {
  constexpr int kBytes = Count * sizeof(T);
  if constexpr (sizeof(T) <= 2 && kBytes % 4 == 0) {
    u32* words = reinterpret_cast<u32*>(&value);
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i)
      asm volatile("" : "+r"(words[i]));
  }
}

//===--- Threads, shared memory, asynchronous copies ------------------------------------------------------------------===//

DEVICE int thread_index() { return threadIdx.y * blockDim.x + threadIdx.x; }
DEVICE i64 block_index() { return blockIdx.x; }
DEVICE int block_row() { return blockIdx.y; }
DEVICE i64 block_count() { return gridDim.x; }
DEVICE void barrier() { __syncthreads(); }
DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE i64 shuffle_xor(i64 value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

DEVICE char* shared_memory() {
  extern __shared__ uint4 bytes[];
  return reinterpret_cast<char*>(bytes);
}

// Copies Bytes (4, 8 or 16, or a multiple of 16) of the calling thread's own from global to shared memory.
template <int Bytes> DEVICE void copy_async(char* shared, const char* global) {
  constexpr int kPiece = Bytes < 16 ? Bytes : 16;
#pragma unroll
  for (int i = 0; i < Bytes; i += kPiece) {
    const u32 target = u32(__cvta_generic_to_shared(shared + i));
    if constexpr (kPiece == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(global + i) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(global + i), "n"(kPiece) : "memory");
  }
}
DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most Pending of the calling thread's committed groups are still under way.
template <int Pending> DEVICE void wait_async() { asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory"); }

//===--- Arithmetic -------------------------------------------------------------------------------------------------===//

DEVICE float absolute(float x) { return fabsf(x); }
// `exact` is within an ulp or two of f32; `fast` has a relative error near 1e-6, invisible once a result is rounded to
// sixteen bits.
DEVICE float exact_exp(float x) { return expf(x); }
DEVICE float fast_exp(float x) { return __expf(x); }
// 0 below the smallest normal number, which spares three instructions.
DEVICE float fast_exp_normal(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
  return result;
}
// Never a part of a fused multiply-add: two threads that add the same products in another order agree.
DEVICE float product(float x, float y) { return __fmul_rn(x, y); }
DEVICE float exact_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float fast_sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
DEVICE float exact_silu(float x) { return x / (1.0f + expf(-x)); }
DEVICE float fast_silu(float x) { return x * fast_sigmoid(x); }
DEVICE float exact_divide(float x, float y) { return x / y; }
DEVICE float fast_divide(float x, float y) {
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
DEVICE float inverse_sqrt(float x) { return rsqrtf(x); }
DEVICE float square_root(float x) { return __fsqrt_rn(x); }
DEVICE float logarithm(float x) { return logf(x); }
DEVICE float logarithm_of_1_plus(float x) { return log1pf(x); }
DEVICE float fast_logarithm(float x) { return __logf(x); }
DEVICE float fast_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
DEVICE float power(float x, float y) { return powf(x, y); }
DEVICE float exact_tanh(float x) { return tanhf(x); }
// 1 - 2 / (exp(2 |x|) + 1), but for the digits that it loses near 0: there the start of the series, fitted up to 0.2.
DEVICE float fast_tanh(float x) {
  float exponential;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(absolute(x) * 2.8853901f));
  const float reciprocal = fast_reciprocal(exponential + 1.0f);
  const float square = x * x;
  const float near = fmaf(x, square * fmaf(square, 0.13038558f, -0.33329714f), x);
  const float far = copysignf(fmaf(-2.0f, reciprocal, 1.0f), x);
  float result; // chosen in assembly: of a condition in C++ the compiler makes branches
  asm("{ .reg .pred p; setp.lt.f32 p, %1, 0f3e4ccccd; selp.f32 %0, %2, %3, p; }"
      : "=f"(result) : "f"(absolute(x)), "f"(near), "f"(far));
  return result;
}
// The same for a result of eight bits, beside which x^3 / 3 is nothing where the digits are lost.
DEVICE float brief_tanh(float x) {
  float exponential;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(x * 2.8853901f));
  const float far = fmaf(-2.0f, fast_reciprocal(exponential + 1.0f), 1.0f);
  float result;
  asm("{ .reg .pred p; setp.lt.f32 p, %1, 0f3c800000; selp.f32 %0, %2, %3, p; }"
      : "=f"(result) : "f"(absolute(x)), "f"(x), "f"(far));
  return result;
}
DEVICE float error_function(float x) { return erff(x); }
DEVICE float normal_cdf(float x) { return normcdff(x); }
DEVICE float remainder_of(float x, float y) { return fmodf(x, y); }
// NaN if one is NaN.
DEVICE float maximum(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
DEVICE float minimum(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
