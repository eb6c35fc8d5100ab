// The arithmetic of GELU and the reading and writing of 16 bytes at a time, for gelu.cu and
// bias_gelu.cu. No header of CUDA's is included, so that NVRTC needs none on the user's machine.
//
// Compiled once for each combination that is used, with these macros:
//   SCALAR  0 float32, 1 bfloat16, 2 float16       TANH  1 for the tanh form, 0 for erf
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

__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// fminf and fmaxf would return the bound for NaN.
__device__ __forceinline__ float at_most(float x, float bound) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
}

__device__ __forceinline__ float at_least(float x, float bound) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
}

// sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), in base 2. It is 0 where the power overflows.
__device__ __forceinline__ float gate(float x) {
  return reciprocal_fast(1.0f + exp2_fast(x * fmaf(-0.10294324f, x * x, -2.3022082f)));
}

// The normal distribution function at -a, to 5e-5 of its value: enough for half types. The
// polynomial fits its log2 on [0, 14.5]; kernels/bench/fit_gelu.py finds both polynomials.
__device__ __forceinline__ float upper_tail(float a) {
  float p = fmaf(-1.418034e-9f, a, 1.10793685e-7f);
  p = fmaf(p, a, -3.7853467e-6f);
  p = fmaf(p, a, 7.473921e-5f);
  p = fmaf(p, a, -9.530718e-4f);
  p = fmaf(p, a, 8.36435e-3f);
  p = fmaf(p, a, -5.3201158e-2f);
  p = fmaf(p, a, -0.45973435f);
  p = fmaf(p, a, -1.1505286f);
  return exp2_fast(fmaf(p, a, -1.0000645f));
}

// The same times exp(a * a / 2), to 3e-7 of its value.
__device__ __forceinline__ float scaled_tail(float a) {
  const float w = reciprocal_fast(fmaf(0.35f, a, 1.0f));
  float p = fmaf(-2.9157853e-2f, w, 0.14403076f);
  p = fmaf(p, w, -0.25583872f);
  p = fmaf(p, w, 0.1593194f);
  p = fmaf(p, w, -2.3212174e-2f);
  p = fmaf(p, w, 0.105552435f);
  p = fmaf(p, w, 0.1198213f);
  p = fmaf(p, w, 0.13986352f);
  return fmaf(p, w, 0.1396213f) * w;
}

// exp(-a * a / 2). For float32 what rounding lost of the exponent, up to 1e-5 of the result far
// out, is added back; half values need it neither in their square (exact) nor in their result.
__device__ __forceinline__ float bell(float a) {
  const float square = __fmul_rn(a, a);
  const float scaled = __fmul_rn(square, -0.7213475f);
  const float power = exp2_fast(scaled);
  if (SCALAR != 0) return power;
  float lost = fmaf(square, -0.7213475f, -scaled);
  lost = fmaf(square, -9.629815e-9f, lost);
  lost = fmaf(fmaf(a, a, -square), -0.7213475f, lost);
  return fmaf(power, lost * 0.6931472f, power);
}

__device__ __forceinline__ float gelu(float x) {
  if (TANH) {
    x = at_least(x, -40.0f);
    return x * gate(x);
  }
  // relu(x) - |x| * tail(|x|): nothing cancels below 0; NaN and the sign of -0 are kept
  const float a = fminf(fabsf(x), 14.5f);
  const float tail = SCALAR == 0 ? bell(a) * scaled_tail(a) : upper_tail(a);
  return fmaf(-a, tail, x < 0.0f ? 0.0f : x);
}

__device__ __forceinline__ float slope(float x) {
  if (TANH) {
    x = at_least(at_most(x, 40.0f), -40.0f);
    const float s = gate(x);
    return fmaf(s * (1.0f - s), x * fmaf(0.21406445f, x * x, 1.5957691f), s);
  }
  const float a = at_most(fabsf(x), 14.5f);
  const float below = bell(a) * fmaf(-0.3989423f, a, scaled_tail(a));
  return x < 0.0f ? below : 1.0f - below;
}

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
