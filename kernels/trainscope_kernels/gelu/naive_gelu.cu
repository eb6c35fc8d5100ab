// The first GELU kernel that anyone writes: one float32 element a thread, 4-byte loads, tanhf.
// It is a baseline of the benchmark, and nothing else calls it.

extern "C" __global__ void naive_gelu(const float* in, float* out, long long length) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= length) return;
  const float x = in[at];
  const float root_two_over_pi = 0.7978845608f;
  const float u = root_two_over_pi * (x + 0.044715f * x * x * x);
  out[at] = 0.5f * x * (1.0f + tanhf(u));
}
