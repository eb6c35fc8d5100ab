// GELU and its gradient over memory as it lies, whatever the shape. Macros as in gelu.cuh, and
//   VECTORS  16-byte vectors of a thread
// Every kernel argument is 64 bits wide; n counts elements.
//
// Bound by memory: an element costs one read and one write (forward), two reads and one write
// (backward). An H200 has time for 27 instructions an element of 2 bytes, 55 of 4 (forward).

#include "gelu.cuh"

template <bool BACKWARD>
__device__ __forceinline__ uint4 mapped(uint4 x_vector, uint4 grad_vector) {
  float x[LANES], grad[LANES], out[LANES];
  unpack(x_vector, x);
  if (BACKWARD) unpack(grad_vector, grad);
#pragma unroll
  for (int i = 0; i < LANES; i++) out[i] = BACKWARD ? grad[i] * slope(x[i]) : gelu(x[i]);
  return pack(out);
}

template <bool BACKWARD>
__device__ __forceinline__ void map_one(const Raw* grad, const Raw* x, Raw* out, i64 at) {
  const float value = widen<SCALAR>(x[at]);
  out[at] = narrow<SCALAR>(BACKWARD ? widen<SCALAR>(grad[at]) * slope(value) : gelu(value));
}

// Each block takes THREADS * VECTORS vectors; all its loads are in flight before the first store,
// which may be to the same place. The elements after the last vector go to the first block.
template <bool BACKWARD>
__device__ __forceinline__ void map_vectors(const Raw* grad, const Raw* x, Raw* out, i64 n) {
  const i64 vectors = n / LANES;
  const i64 first = (i64)blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
  const bool full = first - threadIdx.x + THREADS * VECTORS <= vectors;
  uint4 a[VECTORS], g[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const i64 at = first + i * THREADS;
    if (!full && at >= vectors) break;
    a[i] = load(x + at * LANES);
    if (BACKWARD) g[i] = load(grad + at * LANES);
  }
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const i64 at = first + i * THREADS;
    if (!full && at >= vectors) break;
    store(out + at * LANES, mapped<BACKWARD>(a[i], g[i]));
  }
  const i64 rest = vectors * LANES + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) map_one<BACKWARD>(grad, x, out, rest);
}

// For pointers that are not multiples of 16 bytes.
template <bool BACKWARD>
__device__ __forceinline__ void map_elements(const Raw* grad, const Raw* x, Raw* out, i64 n) {
  i64 at = (i64)blockIdx.x * (THREADS * VECTORS * LANES) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < VECTORS * LANES; i++, at += THREADS) {
    if (at < n) map_one<BACKWARD>(grad, x, out, at);
  }
}

KERNEL forward(const Raw* x, Raw* y, i64 n) { map_vectors<false>(x, x, y, n); }
KERNEL forward_any(const Raw* x, Raw* y, i64 n) { map_elements<false>(x, x, y, n); }
KERNEL backward(const Raw* grad, const Raw* x, Raw* dx, i64 n) { map_vectors<true>(grad, x, dx, n); }
KERNEL backward_any(const Raw* grad, const Raw* x, Raw* dx, i64 n) {
  map_elements<true>(grad, x, dx, n);
}
