// The prelude's names for a CPU: what compiler/cuda/device/prelude.cuh takes from the GPU comes from the machine of
// Machine.h here. Everything else of a kernel's text is what NVRTC compiles.
//
// Stricter than a GPU where that finds mistakes: an address must be aligned to what is moved there, and an asynchronous
// copy lands only when it is waited for.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#define DEVICE inline
#define __device__
#define __noinline__
#define SHARED static // blocks run one after another
// One library may hold several kernels' texts, each in a namespace and with a KERNEL_NAME of its own.
#define KERNEL_NAME(entry) entry
#define KERNEL(threads, blocks, entry, Arguments, ...)                                                                 \
  extern "C" void KERNEL_NAME(entry)(const void* arguments) {                                                          \
    __VA_ARGS__(*static_cast<const Arguments*>(arguments));                                                            \
  }

#include "compiler/cuda/device/types.cuh"

// Filled in by the machine before the first block runs; the layout is Machine.h's.
struct SimtCalls {
  int (*threadIndex)();
  i64 (*blockIndex)();
  int (*blockRow)();
  i64 (*blockCount)();
  void (*barrier)();
  float (*shuffleXor)(float value, int mask);
  char* (*sharedMemory)();
  void (*copyAsync)(char* shared, const char* global, int bytes);
  void (*commitAsync)();
  void (*waitAsync)(int pending);
  void (*misaligned)(const void* address, int bytes);
};
extern "C" SimtCalls simt_calls;
SimtCalls simt_calls;

DEVICE float float_from_bits(u32 bits) {
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
DEVICE u32 bits_from_float(float value) {
  u32 result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}
DEVICE float truncate_to_float(i64 value) {
  const float nearest = float(value);
  const bool isAway = value >= 0 ? nearest >= 0x1p63f || i64(nearest) > value : i64(nearest) < value;
  return isAway ? std::nextafter(nearest, 0.0f) : nearest;
}
DEVICE float to_float(float value) {
  return value;
}
DEVICE float to_float(bf16 value) {
  return float_from_bits(u32(value.bits) << 16);
}
DEVICE float to_float(f16 value) {
  _Float16 half;
  std::memcpy(&half, &value, sizeof half);
  return float(half);
}
#include "compiler/cuda/device/eight_bits.cuh"
DEVICE float to_float(f8e4m3 value) {
  return float_from_e4m3(value.bits);
}
DEVICE float to_float(f8e5m2 value) {
  return to_float(f16{u16(value.bits << 8)});
}

template <class T> T from_float(float value);
template <> DEVICE float from_float<float>(float value) {
  return value;
}
template <> DEVICE bf16 from_float<bf16>(float value) {
  u32 bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value)
    return {u16(0x7fff)};
  return {u16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
template <> DEVICE f16 from_float<f16>(float value) {
  const _Float16 half = _Float16(value);
  f16 result;
  std::memcpy(&result, &half, sizeof half);
  return result;
}
template <> DEVICE f8e4m3 from_float<f8e4m3>(float value) {
  return {(unsigned char)(e4m3_from_float(value))};
}
template <> DEVICE f8e5m2 from_float<f8e5m2>(float value) {
  return {(unsigned char)(e5m2_from_float(value))};
}
template <class T> DEVICE float round_to(float value) {
  return to_float(from_float<T>(value));
}

template <class T, int Count> DEVICE void move_vector(char* target, const char* source) {
  constexpr int kBytes = Count * sizeof(T), kPiece = kBytes < 16 ? kBytes : 16;
  for (const char* address : {static_cast<const char*>(target), source})
    if (reinterpret_cast<uintptr_t>(address) % kPiece != 0)
      simt_calls.misaligned(address, kPiece);
  std::memcpy(target, source, kBytes);
}
template <class T, int Count> DEVICE Vector<T, Count> load_vector(const char* base, i64 offset) {
  Vector<T, Count> result;
  move_vector<T, Count>(reinterpret_cast<char*>(&result), base + offset * i64(sizeof(T)));
  return result;
}
template <class T, int Count> DEVICE void store_vector(char* base, i64 offset, const Vector<T, Count>& value) {
  move_vector<T, Count>(base + offset * i64(sizeof(T)), reinterpret_cast<const char*>(&value));
}
template <class T, int Count> DEVICE float float_at(const Vector<T, Count>& value, int i) {
  return to_float(value.at[i]);
}
template <class T, int Count> DEVICE Vector<T, Count> vector_from_floats(const float (&values)[Count]) {
  Vector<T, Count> result;
  for (int i = 0; i < Count; ++i)
    result.at[i] = from_float<T>(values[i]);
  return result;
}
template <class T, int Count> DEVICE void keep_packed(Vector<T, Count>&) {}

template <class T> struct Pair { T at[2]; };
template <class T> DEVICE Pair<T> pair_of(float low, float high) {
  return {{from_float<T>(low), from_float<T>(high)}};
}
template <class T, int Count> DEVICE Pair<T> pair_at(const Vector<T, Count>& value, int i) {
  return {{value.at[i], value.at[i + 1]}};
}
template <class T, int Count> DEVICE void set_pair(Vector<T, Count>& value, int i, Pair<T> pair) {
  value.at[i] = pair.at[0];
  value.at[i + 1] = pair.at[1];
}
template <class T> DEVICE Pair<T> swapped(Pair<T> pair) {
  return {{pair.at[1], pair.at[0]}};
}
template <class T> DEVICE float low(Pair<T> pair) {
  return to_float(pair.at[0]);
}
template <class T> DEVICE float high(Pair<T> pair) {
  return to_float(pair.at[1]);
}
template <class T> DEVICE Pair<T> operator-(Pair<T> x) {
  return pair_of<T>(-low(x), -high(x));
}
template <class T> DEVICE Pair<T> operator*(Pair<T> x, Pair<T> y) {
  return pair_of<T>(low(x) * low(y), high(x) * high(y));
}
template <class T> DEVICE Pair<T> operator+(Pair<T> x, Pair<T> y) {
  return pair_of<T>(low(x) + low(y), high(x) + high(y));
}
template <class T> DEVICE Pair<T> operator-(Pair<T> x, Pair<T> y) {
  return pair_of<T>(low(x) - low(y), high(x) - high(y));
}
template <class T> DEVICE Pair<T> absolute(Pair<T> x) {
  return pair_of<T>(std::fabs(low(x)), std::fabs(high(x)));
}
template <class T> DEVICE Pair<T> chosen(bool low, bool high, Pair<T> x, Pair<T> y) {
  return {{low ? x.at[0] : y.at[0], high ? x.at[1] : y.at[1]}};
}

DEVICE int thread_index() {
  return simt_calls.threadIndex();
}
DEVICE i64 block_index() {
  return simt_calls.blockIndex();
}
DEVICE int block_row() {
  return simt_calls.blockRow();
}
DEVICE i64 block_count() {
  return simt_calls.blockCount();
}
DEVICE void barrier() {
  simt_calls.barrier();
}
DEVICE float shuffle_xor(float value, int mask) {
  return simt_calls.shuffleXor(value, mask);
}
DEVICE i64 shuffle_xor(i64 value, int mask) {
  float halves[2];
  std::memcpy(halves, &value, sizeof value);
  for (float& half : halves)
    half = simt_calls.shuffleXor(half, mask);
  std::memcpy(&value, halves, sizeof value);
  return value;
}
DEVICE char* shared_memory() {
  return simt_calls.sharedMemory();
}

template <int Bytes> DEVICE void copy_async(char* shared, const char* global) {
  constexpr int kPiece = Bytes < 16 ? Bytes : 16;
  static_assert(kPiece >= 4, "an asynchronous copy moves 4, 8 or 16 bytes");
  for (int i = 0; i < Bytes; i += kPiece) {
    if (reinterpret_cast<uintptr_t>(shared + i) % kPiece || reinterpret_cast<uintptr_t>(global + i) % kPiece)
      simt_calls.misaligned(global + i, kPiece);
    simt_calls.copyAsync(shared + i, global + i, kPiece);
  }
}
DEVICE void commit_async() {
  simt_calls.commitAsync();
}
template <int Pending> DEVICE void wait_async() {
  simt_calls.waitAsync(Pending);
}

DEVICE float exact_exp(float x) {
  return std::exp(x);
}
DEVICE float fast_exp(float x) {
  return std::exp(x);
}
DEVICE float fast_exp_normal(float x) {
  return std::exp(x);
}
DEVICE float product(float x, float y) {
  return x * y;
}
DEVICE float exact_sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}
DEVICE float fast_sigmoid(float x) {
  return exact_sigmoid(x);
}
DEVICE float exact_silu(float x) {
  return x / (1.0f + std::exp(-x));
}
DEVICE float fast_silu(float x) {
  return x * fast_sigmoid(x);
}
DEVICE float exact_divide(float x, float y) {
  return x / y;
}
DEVICE float fast_divide(float x, float y) {
  return x / y;
}
DEVICE float inverse_sqrt(float x) {
  return 1.0f / std::sqrt(x);
}
DEVICE float square_root(float x) {
  return std::sqrt(x);
}
DEVICE float logarithm(float x) {
  return std::log(x);
}
DEVICE float logarithm_of_1_plus(float x) {
  return std::log1p(x);
}
DEVICE float fast_logarithm(float x) {
  return std::log(x);
}
// As the instruction has no numbers that are not normal.
DEVICE float fast_reciprocal(float x) {
  const float size = std::fabs(x);
  return size > 0x1p126f ? std::copysign(0.0f, x) : 1.0f / (size < 0x1p-126f ? std::copysign(0.0f, x) : x);
}
DEVICE float power(float x, float y) {
  return std::pow(x, y);
}
DEVICE float exact_tanh(float x) {
  return std::tanh(x);
}
DEVICE float fast_tanh(float x) {
  return std::tanh(x);
}
DEVICE float brief_tanh(float x) {
  return std::fabs(x) < 0.015625f ? x : std::tanh(x);
}
DEVICE float error_function(float x) {
  return std::erf(x);
}
DEVICE float normal_cdf(float x) {
  return float(0.5 * std::erfc(-double(x) * 0.70710678118654752));
}
DEVICE float absolute(float x) {
  return std::fabs(x);
}
DEVICE float remainder_of(float x, float y) {
  return std::fmod(x, y);
}
DEVICE float maximum(float x, float y) {
  return x != x || x > y ? x : y;
}
DEVICE float minimum(float x, float y) {
  return x != x || x < y ? x : y;
}
