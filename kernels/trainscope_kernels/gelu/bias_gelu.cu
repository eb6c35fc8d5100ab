// GELU of x + bias and its gradients, over rows. Macros as in gelu.cuh, and
//   BIAS  the type of the bias: 0 float32, 1 bfloat16, 2 float16
// Every kernel argument is 64 bits wide; rows and cols count elements.
//
// Bound by memory: one read and one write an element (forward), two reads and one write and a
// float32 partial sum every `chunk` rows (backward).

#include "gelu.cuh"

typedef typename Type<BIAS>::Raw RawBias;

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
  const i64 end = min(rows, (band + 1) * chunk);
#pragma unroll 4
  for (i64 row = band * chunk + threadIdx.y; row < end; row += blockDim.y) {
    const i64 at = row * cols + col;
    float value[WIDTH], g[WIDTH];
    if (WIDTH == 1) {
      value[0] = widen<SCALAR>(x[at]);
      if (BACKWARD) g[0] = widen<SCALAR>(grad[at]);
    } else {
      unpack(load((const uint4*)(x + at)), value);
      if (BACKWARD) unpack(load((const uint4*)(grad + at)), g);
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      value[i] = BACKWARD ? g[i] * slope(value[i] + b[i]) : gelu(value[i] + b[i]);
      sum[i] += value[i];
    }
    if (WIDTH == 1) out[at] = narrow<SCALAR>(value[0]);
    else store((uint4*)(out + at), pack(value));
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
