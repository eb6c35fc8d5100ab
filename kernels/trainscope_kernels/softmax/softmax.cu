// Softmax of long rows and its gradient: a cluster of thread blocks keeps one row in registers, so
// that each element is read once and written once however long the row is.
//
// Macros as in vectors.cuh, and
//   VECTORS  16-byte vectors of each operand that a thread holds
//   CLUSTER  blocks of a row; rank r has its r-th THREADS * VECTORS vectors
// Every kernel argument is 64 bits wide; strides and columns count elements. For each row the
// operands and the result start at the same distance from a multiple of 16 bytes, so that the
// vectors of one cover those of the others; a row's first and last vector may be partly its own.
//
// Blocks of a cluster run at the same time by CUDA's promise. They write their parts of the sum
// into each other's shared memory and meet once; who writes knows that the others have started,
// for all have arrived at the barrier's first phase, and nobody is written to after the second.

#include "vectors.cuh"

static constexpr int WARPS = THREADS / 32;
static constexpr float LOG2E = 1.4426950216293335f;
static constexpr float LOG2E_REST = 1.92596298909109e-8f;
static constexpr float LN2 = 0.6931471805599453f;
#define INF __uint_as_float(0x7f800000u)

// exp of what is at most 0, -inf or NaN. For float32 the digits that the product with log2(e)
// loses are put back to first order; a half value has no use for them.
__device__ __forceinline__ float exp_of(float difference) {
  if (SCALAR != 0) return exp2_fast(difference * LOG2E);
  // below -150 the result is 0 and inf - inf would be NaN; a NaN must stay one
  difference = difference < -150.0f ? -150.0f : difference;
  const float power = difference * LOG2E;
  const float rest = fmaf(difference, LOG2E, -power) + difference * LOG2E_REST;
  const float grown = exp2_fast(power);
  return fmaf(grown, rest * LN2, grown);
}

// exp(x - base). Of a half value one fused multiply-add is near enough: what rounding LOG2E * base
// loses is less than x is from its neighbours, or the same for each x.
__device__ __forceinline__ float exp_above(float x, float base) {
  return SCALAR == 0 ? exp_of(x - base) : exp2_fast(fmaf(x, LOG2E, -(LOG2E * base)));
}

// What is subtracted before exp: of a part with nothing but -inf 0, so that its sum is 0.
__device__ __forceinline__ float base_of(float largest) {
  return largest == -INF ? 0.0f : largest;
}

__device__ __forceinline__ u32 larger(u32 a, u32 b) {
  u32 word;
  if (SCALAR == 0) return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
  if (SCALAR == 1) asm("max.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  else asm("max.f16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  return word;
}

// The largest value of the vectors, NaN left out: half values are compared in pairs.
__device__ __forceinline__ float largest_of(const uint4* vector) {
  u32 top = vector[0].x;
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    top = larger(top, larger(larger(vector[k].x, vector[k].y), larger(vector[k].z, vector[k].w)));
  }
  float first = __uint_as_float(top), second = first;
  if (SCALAR != 0) unpair(top, first, second);
  return fmaxf(fmaxf(first, second), -INF);
}

// Make the compiler forget that it has the widened values of these vectors already: it would keep
// them while blocks wait, two registers for two half values where one does.
__device__ __forceinline__ void stay_packed(uint4* vector) {
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    asm volatile("" : "+r"(vector[k].x), "+r"(vector[k].y), "+r"(vector[k].z), "+r"(vector[k].w));
  }
}

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Store a pair at `local`, an address of this block's shared memory, in that of block `rank`.
__device__ __forceinline__ void store_at(u32 local, int rank, float first, float second) {
  asm volatile(
      "{.reg .u32 there; mapa.shared::cluster.u32 there, %0, %1;"
      " st.shared::cluster.v2.f32 [there], {%2, %3};}"
      :: "r"(local), "r"(rank), "f"(first), "f"(second) : "memory");
}

// Where a thread's vectors lie: the k-th starts at column(k). Vectors are counted from the multiple
// of 16 bytes at or before the row's start. WHOLE: all elements of the block's vectors are the row's.
template <bool WHOLE> struct Place {
  int first, columns;

  __device__ __forceinline__ int column(int k) const { return first + k * (THREADS * LANES); }
  __device__ __forceinline__ bool none(int k) const { return !WHOLE && column(k) >= columns; }
  __device__ __forceinline__ bool all(int k) const {
    return WHOLE || (column(k) >= 0 && column(k) + LANES <= columns);
  }
  __device__ __forceinline__ bool has(int column) const {
    return column >= 0 && column < columns;
  }
};

// One word of a vector with `none` in place of what is not the row's.
template <bool WHOLE>
__device__ __forceinline__ u32 only_own(u32 word, Place<WHOLE> place, int column, u32 none) {
  if (SCALAR == 0) return place.has(column) ? word : none;
  const u32 own = (place.has(column) ? 0xffffu : 0u) | (place.has(column + 1) ? ~0xffffu : 0u);
  return (word & own) | (none & ~own);
}

// The thread's vectors of a row; elements that are not the row's become `otherwise`.
template <bool WHOLE>
__device__ __forceinline__ void read_row(
    const Raw* row, Place<WHOLE> place, float otherwise, uint4* vector) {
  const Raw* at = row + place.first;
  const u32 none = SCALAR == 0 ? __float_as_uint(otherwise) : pair(otherwise, otherwise);
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    // aligned, so that it touches no page that the row does not: up to 14 bytes beyond a tensor
    // are read and dropped, which a memory checker may tell of
    if (place.none(k)) vector[k] = make_uint4(none, none, none, none);
    else vector[k] = load(at + k * (THREADS * LANES));
  }
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    if (place.all(k) || place.none(k)) continue;
    const int column = place.column(k), lanes = LANES / 4;
    vector[k].x = only_own(vector[k].x, place, column, none);
    vector[k].y = only_own(vector[k].y, place, column + lanes, none);
    vector[k].z = only_own(vector[k].z, place, column + 2 * lanes, none);
    vector[k].w = only_own(vector[k].w, place, column + 3 * lanes, none);
  }
}

template <bool WHOLE>
__device__ __forceinline__ void write_vector(
    Raw* row, Place<WHOLE> place, int k, const float* lane) {
  if (place.all(k)) {
    store(row + place.first + k * (THREADS * LANES), pack(lane));
  } else if (!place.none(k)) {
#pragma unroll
    for (int i = 0; i < LANES; i++) {
      const int column = place.column(k) + i;
      if (place.has(column)) row[column] = narrow<SCALAR>(lane[i]);
    }
  }
}

// A maximum and a sum of exp(x - base_of(maximum)).
struct Part {
  float largest, total;

  __device__ __forceinline__ void rise_to(float other) {
    total *= exp_of(largest - base_of(other));
    largest = other;
  }
  __device__ __forceinline__ void join_warp() {
    float top = largest;
#pragma unroll
    for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, i));
    rise_to(top);
#pragma unroll
    for (int i = 16; i > 0; i /= 2) total += __shfl_xor_sync(~0u, total, i);
  }
};

// The part of the whole row, from this thread's; the same bits in every thread of the cluster.
__device__ __forceinline__ Part joined(Part part) {
  __shared__ float2 parts[CLUSTER * WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  part.join_warp();
  const u32 own = (u32)__cvta_generic_to_shared(parts + blockIdx.x % CLUSTER * WARPS + warp);
  cluster_wait();
  if (lane < CLUSTER) store_at(own, lane, part.largest, part.total);
  cluster_arrive();
  cluster_wait();
  part = {-INF, 0.0f};
#pragma unroll
  for (int i = 0; i < CLUSTER * WARPS; i += 32) {
    if (i + lane >= CLUSTER * WARPS) break;
    Part other = {parts[i + lane].x, parts[i + lane].y};
    const float top = fmaxf(part.largest, other.largest);
    part.rise_to(top);
    other.rise_to(top);
    part.total += other.total;
  }
  part.join_warp();
  return part;
}

template <bool WHOLE>
__device__ __forceinline__ void forward_row(const Raw* x, Raw* y, Place<WHOLE> place) {
  uint4 kept[VECTORS];
  float lane[LANES];
  read_row(x, place, -INF, kept);
  Part part = {largest_of(kept), 0.0f};
  stay_packed(kept);
  const float own = base_of(part.largest);
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    unpack(kept[k], lane);
#pragma unroll
    for (int i = 0; i < LANES; i++) {
      lane[i] = exp_above(lane[i], own);
      part.total += lane[i];
    }
    // float32 has room for the exponentials where the values were
    if (SCALAR == 0) kept[k] = pack(lane);
  }
  stay_packed(kept);
  part = joined(part);
  const float top = base_of(part.largest);
  const float inverse = __frcp_rn(part.total);
  const float factor = exp_of(own - top) * inverse;
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    unpack(kept[k], lane);
#pragma unroll
    for (int i = 0; i < LANES; i++) {
      lane[i] = SCALAR == 0 ? lane[i] * factor : exp_above(lane[i], top) * inverse;
    }
    write_vector(y, place, k, lane);
  }
}

template <bool WHOLE>
__device__ __forceinline__ void backward_row(
    const Raw* dy, const Raw* y, Raw* dx, Place<WHOLE> place) {
  uint4 y_kept[VECTORS], dy_kept[VECTORS];
  float y_lane[LANES], dy_lane[LANES];
  read_row(y, place, 0.0f, y_kept);
  read_row(dy, place, 0.0f, dy_kept);
  // a maximum of 0 in every part, so that joining adds the totals as they are
  Part part = {0.0f, 0.0f};
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    unpack(y_kept[k], y_lane);
    unpack(dy_kept[k], dy_lane);
#pragma unroll
    for (int i = 0; i < LANES; i++) part.total = fmaf(y_lane[i], dy_lane[i], part.total);
  }
  stay_packed(y_kept);
  stay_packed(dy_kept);
  const float dot = joined(part).total;
#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    unpack(y_kept[k], y_lane);
    unpack(dy_kept[k], dy_lane);
#pragma unroll
    for (int i = 0; i < LANES; i++) dy_lane[i] = y_lane[i] * (dy_lane[i] - dot);
    write_vector(dx, place, k, dy_lane);
  }
}

// The columns before the first one of this block, and whether all of the block's exist.
__device__ __forceinline__ int block_start(const Raw* row) {
  const int before = (int)((i64)row & 15) / (int)sizeof(Raw);
  return (int)(blockIdx.x % CLUSTER) * (THREADS * VECTORS * LANES) - before;
}

__device__ __forceinline__ bool is_whole(int start, int columns) {
  return start >= 0 && start + THREADS * VECTORS * LANES <= columns;
}

// A multiprocessor must have registers for blocks that hold 8192 vectors of all operands together:
// 64 a thread where it holds 8, 128 where it holds 16. With fewer blocks the memory would idle.
#define CLUSTERED(operands) extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) \
    __launch_bounds__(THREADS, 8192 / (operands * VECTORS * THREADS))

CLUSTERED(1) forward(const Raw* x, Raw* y, i64 columns, i64 x_stride) {
  cluster_arrive();
  const i64 row = blockIdx.x / CLUSTER;
  x += row * x_stride;
  y += row * columns;
  const int start = block_start(x), first = start + threadIdx.x * LANES;
  if (is_whole(start, columns)) forward_row<true>(x, y, {first, (int)columns});
  else forward_row<false>(x, y, {first, (int)columns});
}

CLUSTERED(2) backward(const Raw* dy, const Raw* y, Raw* dx, i64 columns, i64 dy_stride) {
  cluster_arrive();
  const i64 row = blockIdx.x / CLUSTER;
  dy += row * dy_stride;
  y += row * columns;
  dx += row * columns;
  const int start = block_start(y), first = start + threadIdx.x * LANES;
  if (is_whole(start, columns)) backward_row<true>(dy, y, dx, {first, (int)columns});
  else backward_row<false>(dy, y, dx, {first, (int)columns});
}
