// The types of values, the reading and writing of 16 bytes at a time, and exp2, for any kernel here.
// No header of CUDA's is included, so that NVRTC needs none on the user's machine.
//
// Compiled once for each combination that is used, with these macros:
//   SCALAR  0 float32, 1 bfloat16, 2 float16
//   STREAM  1: loads and stores say that the line will not be used again
//   THREADS of a block

typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;

template <int KIND> struct Type { typedef u16 Raw; };
template <> struct Type<0> { typedef u32 Raw; };
typedef typename Type<SCALAR>::Raw Raw;
static constexpr int LANES = 16 / sizeof(Raw);

template <int KIND> __device__ __forceinline__ float widen(u32 raw) {
  float value;
  if (KIND == 0) value = __uint_as_float(raw);
  if (KIND == 1) value = __uint_as_float(raw << 16);
  if (KIND == 2) asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)raw));
  return value;
}

template <int KIND> __device__ __forceinline__ u32 narrow(float value) {
  if (KIND == 0) return __float_as_uint(value);
  u16 raw;
  if (KIND == 1) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(raw) : "f"(value));
  if (KIND == 2) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(value));
  return raw;
}

// A pair is one 32-bit word of two half values, the first one in the low bits.
__device__ __forceinline__ void unpair(u32 word, float& first, float& second) {
  if (SCALAR == 1) {
    first = __uint_as_float(word << 16);
    second = __uint_as_float(word & 0xffff0000u);
  } else {
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(first), "=f"(second) : "r"(word));
  }
}

__device__ __forceinline__ u32 pair(float first, float second) {
  u32 word;
  if (SCALAR == 1) asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(first), "f"(second));
  else asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(first), "f"(second));
  return word;
}

__device__ __forceinline__ void unpack(uint4 vector, float* lane) {
  const u32 word[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (SCALAR == 0) lane[i] = __uint_as_float(word[i]);
    else unpair(word[i], lane[2 * i], lane[2 * i + 1]);
  }
}

__device__ __forceinline__ uint4 pack(const float* lane) {
  u32 word[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (SCALAR == 0) word[i] = __float_as_uint(lane[i]);
    else word[i] = pair(lane[2 * i], lane[2 * i + 1]);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// By intrinsics: left to itself, the compiler takes some of the stores apart into four.
__device__ __forceinline__ uint4 load(const void* at) {
  return STREAM ? __ldcs((const uint4*)at) : __ldca((const uint4*)at);
}

__device__ __forceinline__ void store(void* at, uint4 vector) {
  if (STREAM) __stcs((uint4*)at, vector);
  else __stwb((uint4*)at, vector);
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
