// The arithmetic of GELU, for gelu.cu and bias_gelu.cu. Macros as in vectors.cuh, and
//   TANH  1 for the tanh form, 0 for erf

#include "vectors.cuh"

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
    const float inner = x * fmaf(0.21406445f, x * x, 1.5957691f);
    if (SCALAR != 0) {
      const float s = gate(x);
      return fmaf(s * (1.0f - s), inner, s);
    }
    // 1 - s would have lost its digits where s is close to 1, and `inner` is large there
    const float power = x * fmaf(-0.10294324f, x * x, -2.3022082f);
    const float small = exp2_fast(-fabsf(power));
    const float large = reciprocal_fast(1.0f + small);
    const float s = power < 0.0f ? large : small * large;
    return fmaf(small * large * large, inner, s);
  }
  const float a = at_most(fabsf(x), 14.5f);
  const float below = bell(a) * fmaf(-0.3989423f, a, scaled_tail(a));
  return x < 0.0f ? below : 1.0f - below;
}
