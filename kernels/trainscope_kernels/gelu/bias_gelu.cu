// GELU of x + bias and its gradients, over rows. Macros as in gelu.cuh, and
//   BIAS  the type of the bias: 0 float32, 1 bfloat16, 2 float16
// Every kernel argument is 64 bits wide; rows and cols count elements.
//
// Bound by memory: one read and one write an element (forward), two reads and one write and a
// float32 partial sum every `chunk` rows (backward).

#include "gelu.cuh"

typedef typename Type<BIAS>::Raw RawBias;

// What a thread holds of a row before it computes: 16 bytes, or one element.
template <int WIDTH> struct Slice {
  uint4 raw;
  __device__ __forceinline__ void read(const Raw* at) { raw = load(at); }
  __device__ __forceinline__ void widen_to(float* lane) const { unpack(raw, lane); }
  __device__ __forceinline__ void write(Raw* at, const float* lane) const { store(at, pack(lane)); }
};
template <> struct Slice<1> {
  Raw raw;
  __device__ __forceinline__ void read(const Raw* at) { raw = *at; }
  __device__ __forceinline__ void widen_to(float* lane) const { *lane = widen<SCALAR>(raw); }
  __device__ __forceinline__ void write(Raw* at, const float* lane) const {
    *at = narrow<SCALAR>(*lane);
  }
};

// Rows of `cols` elements, a thread for WIDTH columns and every blockDim.y-th of the band's rows.
// Blocks lie along a row first. sums has one row for each band and threadIdx.y: the column sums
// of the gradient over the thread's rows, added later in a fixed order.
template <bool BACKWARD, int WIDTH>
__device__ __forceinline__ void biased(const Raw* __restrict__ grad, const Raw* __restrict__ x,
                                       const RawBias* __restrict__ bias, Raw* __restrict__ out,
                                       float* __restrict__ sums, i64 rows, i64 cols, i64 chunk) {
  const i64 across = (cols + blockDim.x * WIDTH - 1) / (blockDim.x * WIDTH);
  const i64 band = blockIdx.x / across;
  const i64 col = ((blockIdx.x - band * across) * blockDim.x + threadIdx.x) * WIDTH;
  if (col >= cols) return;
  float b[WIDTH], sum[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    b[i] = widen<BIAS>(bias[col + i]);
    sum[i] = 0.0f;
  }
  // DEPTH rows are in flight before the first of them is stored
  constexpr int DEPTH = BACKWARD ? 2 : 4;
  const i64 end = min(rows, (band + 1) * chunk);
  for (i64 first = band * chunk + threadIdx.y; first < end; first += DEPTH * blockDim.y) {
    Slice<WIDTH> value[DEPTH], g[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
      const i64 row = first + d * blockDim.y;
      if (row >= end) break;
      value[d].read(x + row * cols + col);
      if (BACKWARD) g[d].read(grad + row * cols + col);
    }
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
      const i64 row = first + d * blockDim.y;
      if (row >= end) break;
      float z[WIDTH], dy[WIDTH];
      value[d].widen_to(z);
      if (BACKWARD) g[d].widen_to(dy);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        z[i] = BACKWARD ? dy[i] * slope(z[i] + b[i]) : gelu(z[i] + b[i]);
        sum[i] += z[i];
      }
      value[d].write(out + row * cols + col, z);
    }
  }
  if (BACKWARD) {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      sums[(band * blockDim.y + threadIdx.y) * cols + col + i] = sum[i];
    }
  }
}

KERNEL bias_forward(const Raw* x, const RawBias* b, Raw* y, i64 rows, i64 cols, i64 chunk) {
  biased<false, LANES>(x, x, b, y, nullptr, rows, cols, chunk);
}
KERNEL bias_forward_any(const Raw* x, const RawBias* b, Raw* y, i64 rows, i64 cols, i64 chunk) {
  biased<false, 1>(x, x, b, y, nullptr, rows, cols, chunk);
}
KERNEL bias_backward(const Raw* grad, const Raw* x, const RawBias* b, Raw* dx, float* sums, i64 rows,
                     i64 cols, i64 chunk) {
  biased<true, LANES>(grad, x, b, dx, sums, rows, cols, chunk);
}
KERNEL bias_backward_any(const Raw* grad, const Raw* x, const RawBias* b, Raw* dx, float* sums,
                         i64 rows, i64 cols, i64 chunk) {
  biased<true, 1>(grad, x, b, dx, sums, rows, cols, chunk);
}
