// Ring convolution by FFT, forward and gradients; see fft_conv.h for what is computed and fft_conv.cuh for the FFT.
//
// A ring of 2S real values is one complex sequence z[t] = r[2t] + i r[2t+1] of N = S points, and so is a row of x,
// whose second half is zero. S = 16384 then needs 128 KiB of shared memory, one row never shares its rounding errors
// with another (as it would if two rows were one complex sequence), and batches of one lose nothing. With E and O the
// spectra of the even and the odd samples, the product of two such transforms is the product of polynomials
// (E + w O)(E' + w O'), w^2 = v = exp(-2 pi i f/N); E and O come from Z[f] and Z[N-f], which lie at mirrored positions.
//
// Layout. A block transforms C channels of one row of the batch, and reads (B, L, D) with the channels side by side:
// 32-byte pieces or more for S <= 1024, 16 bytes for 2048, and 8 bytes or fewer beyond, as shared memory has room for
// one or two channels there. Each sector would then pass four to eight times between the L2 cache and the
// multiprocessors, each time as much as the FFT itself moves; so for S >= 4096 the caller copies to (B, D, L) and back
// (ring_prefers_time_last_cuda), and the kernels read whatever strides they get.
//
// Deterministic: the sums over the batch run in an order that depends on the shape alone.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "fft_conv/cuda.cuh"
#include "fft_conv/fft_conv.h"

namespace fm {
namespace {

using namespace fft;

constexpr int kMaxThreads = 512;        // so that a radix-16 butterfly has its registers
constexpr int kBlockPoints = 8192;      // 68 KiB, by 256 threads: two or three blocks per multiprocessor
constexpr int kThreeBlocks = 768;       // launch bound that leaves registers for three such blocks
constexpr int kMaxChannels = 32;
constexpr int kWantedBlocks = 528;      // enough for the largest GPUs; a constant, as sums depend on it
constexpr int kPairs = 8;               // pairs of frequencies per thread of the gradient

// How a block works; the same for all kernels of a call.
struct Plan {
  int64_t length, width;
  int log_n;          // N = S
  int log_channels;   // C, of which the last block of a row may use fewer
  int time_first;     // neighbouring threads take neighbouring times, not channels
  DType dtype;

  __host__ __device__ int n() const { return 1 << log_n; }
  __host__ __device__ int half() const { return n() >> 1; }                    // M
  __host__ __device__ int channels() const { return 1 << log_channels; }
  __host__ __device__ int log_first() const { return (log_n - 1) & 3; }        // radix of the first pass on M points
  __host__ __device__ int passes() const { return (log_n - 1) >> 2; }
  __host__ __device__ int log_h() const { return 4 * passes(); }
  // Rows of shared memory: an offset between channels lets a warp write 2 or 4 channels without bank conflicts.
  __host__ __device__ int stride() const { return spread(n()) + (channels() < 16 ? 16 >> log_channels : 1); }
  __host__ __device__ int half_stride() const { return spread(half()) + (channels() < 8 ? 8 >> log_channels : 1); }
  int shared_bytes() const {
    const int points = stride() > 2 * half_stride() ? stride() : 2 * half_stride();
    return points * channels() * static_cast<int>(sizeof(float2));
  }
  int threads() const {
    const int wanted = channels() * n() / 32;  // two radix-16 butterflies each
    return wanted < 32 ? 32 : wanted > kMaxThreads ? kMaxThreads : wanted;
  }
  __host__ __device__ int64_t groups() const { return (width + channels() - 1) >> log_channels; }
  __device__ int channels_from(int64_t first) const {
    return width - first < channels() ? static_cast<int>(width - first) : channels();
  }
};

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ void from_float(float v, float* p) { *p = v; }
__device__ __forceinline__ void from_float(float v, __nv_bfloat16* p) { *p = __float2bfloat16(v); }
__device__ __forceinline__ void from_float(float v, __half* p) { *p = __float2half(v); }

// Calls work(channel, j) for the C h first-pass butterflies of the block's channels.
template <class Work>
__device__ __forceinline__ void each_butterfly(const Plan& plan, int channels, bool time_first, Work work) {
  const int log_h = plan.log_h();
  for (int i = threadIdx.x; i < plan.channels() << log_h; i += blockDim.x) {
    const int c = time_first ? i >> log_h : i & (plan.channels() - 1);
    const int j = time_first ? i & ((1 << log_h) - 1) : i >> plan.log_channels;
    if (c < channels) work(c, j);
  }
}

// Calls work(Radix<R>) for the radix of the first pass.
template <int R>
struct Radix {
  static constexpr int value = R;
};
template <class Work>
__device__ __forceinline__ void with_radix(int log_first, Work work) {
  if (log_first == 0) work(Radix<1>());
  else if (log_first == 1) work(Radix<2>());
  else if (log_first == 2) work(Radix<4>());
  else work(Radix<8>());
}

// One channel of one row: where its first element lies, and the step in time.
template <class T>
__device__ __forceinline__ const T* channel_at(const Sequence& x, int64_t row, int64_t d) {
  return static_cast<const T*>(x.data) + row * x.batch + d * x.channel;
}

// v[s] = the real samples at 2t and 2t + 1, t = j + s h, zero from `length` on.
template <class T, int R>
__device__ __forceinline__ void load_as(float2 (&v)[R], const T* p, int64_t step, int j, int log_h, int64_t length) {
#pragma unroll
  for (int s = 0; s < R; ++s) {
    const int64_t t = 2 * static_cast<int64_t>(j + (s << log_h));
    v[s] = make_float2(t < length ? to_float(p[t * step]) : 0.f, t + 1 < length ? to_float(p[(t + 1) * step]) : 0.f);
  }
}
template <class T, int R>
__device__ __forceinline__ void store_as(const float2 (&v)[R], T* p, int64_t step, int j, int log_h, int64_t length) {
#pragma unroll
  for (int s = 0; s < R; ++s) {
    const int64_t t = 2 * static_cast<int64_t>(j + (s << log_h));
    if (t < length) from_float(v[s].x, p + t * step);
    if (t + 1 < length) from_float(v[s].y, p + (t + 1) * step);
  }
}

// The element type is looked up once per butterfly: a third of the code to compile, for a branch that all threads
// take alike.
template <int R>
__device__ __forceinline__ void load(float2 (&v)[R], const Plan& plan, const Sequence& x, int64_t row, int64_t d,
                                     int j) {
  switch (plan.dtype) {
    case DType::kBFloat16:
      return load_as(v, channel_at<__nv_bfloat16>(x, row, d), x.time, j, plan.log_h(), plan.length);
    case DType::kFloat16: return load_as(v, channel_at<__half>(x, row, d), x.time, j, plan.log_h(), plan.length);
    default: return load_as(v, channel_at<float>(x, row, d), x.time, j, plan.log_h(), plan.length);
  }
}
template <int R>
__device__ __forceinline__ void store(const float2 (&v)[R], const Plan& plan, const SequenceOut& y, int64_t row,
                                      int64_t d, int j) {
  const int64_t at = row * y.batch + d * y.channel;
  switch (plan.dtype) {
    case DType::kBFloat16:
      return store_as(v, static_cast<__nv_bfloat16*>(y.data) + at, y.time, j, plan.log_h(), plan.length);
    case DType::kFloat16:
      return store_as(v, static_cast<__half*>(y.data) + at, y.time, j, plan.log_h(), plan.length);
    default: return store_as(v, static_cast<float*>(y.data) + at, y.time, j, plan.log_h(), plan.length);
  }
}

// Spectra (D, N) of rings (D, 2S), or of the rings read backwards.
__global__ void __launch_bounds__(kMaxThreads)
ring_spectrum_kernel(Plan plan, const float* __restrict__ ring, int reversed, float2* __restrict__ spectrum) {
  FM_DYNAMIC_SHARED(float2, z);
  const int64_t d0 = static_cast<int64_t>(blockIdx.x) << plan.log_channels;
  const int channels = plan.channels_from(d0), n = plan.n(), half = plan.half(), stride = plan.stride();
  const float two_over_n = 2.f / static_cast<float>(n);
  with_radix(plan.log_first(), [&](auto radix) {
    constexpr int R = decltype(radix)::value;
    each_butterfly(plan, channels, true, [&](int c, int j) {
      const float* r = ring + (d0 + c) * 2 * n;
      float2 even[R], odd[R];
#pragma unroll
      for (int s = 0; s < R; ++s) {
        const int t = 2 * (j + (s << plan.log_h()));
        const int wrap = 2 * n - 1;
        const float2 a = reversed ? make_float2(r[-t & wrap], r[(-t - 1) & wrap]) : make_float2(r[t], r[t + 1]);
        const float2 b = reversed ? make_float2(r[(-t - n) & wrap], r[(-t - n - 1) & wrap])
                                  : make_float2(r[t + n], r[t + n + 1]);
        even[s] = add(a, b);
        odd[s] = sub(a, b);
      }
      first_pass<R, false>(even, j, two_over_n);
      first_pass<R, true>(odd, j, two_over_n);
#pragma unroll
      for (int s = 0; s < R; ++s) {
        const int position = j + (s << plan.log_h());
        z[c * stride + spread(position)] = even[s];
        z[c * stride + spread(position + half)] = odd[s];
      }
    });
  });
  __syncthreads();
  forward(z, channels, plan.log_n, stride, plan.passes());
  for (int i = threadIdx.x; i < channels << plan.log_n; i += blockDim.x) {
    spectrum[(d0 << plan.log_n) + i] = z[(i >> plan.log_n) * stride + spread(i & (n - 1))];
  }
}

// Replaces Z[f] = a and Z[N-f] = conj(b) by the transform of the product with the ring's, p and conj(r), 4 times.
__device__ __forceinline__ void multiply(float2& a, float2& b, float2 p, float2 r, float2 v) {
  const float2 ap = mul(a, p), br = mul(b, r), cross = add(mul(a, r), mul(b, p)), straight = add(ap, br);
  const float2 even = sub(add(straight, cross), mul(v, sub(straight, cross))), odd = scale(sub(ap, br), 2.f);
  a = add(even, odd);
  b = sub(even, odd);
}

__global__ void __launch_bounds__(kThreeBlocks)
ring_convolution_kernel(Plan plan, int64_t batch, Sequence x, const float2* __restrict__ spectrum, SequenceOut y) {
  FM_DYNAMIC_SHARED(float2, z);
  // Rows of the batch next to each other: they share the channels' spectra in the L2 cache.
  const int64_t row = blockIdx.x % batch, d0 = (blockIdx.x / batch) << plan.log_channels;
  const int channels = plan.channels_from(d0), n = plan.n(), half = plan.half(), stride = plan.stride();
  const float two_over_n = 2.f / static_cast<float>(n);
  with_radix(plan.log_first(), [&](auto radix) {
    constexpr int R = decltype(radix)::value;
    each_butterfly(plan, channels, plan.time_first, [&](int c, int j) {
      float2 even[R], odd[R];
      load(even, plan, x, row, d0 + c, j);
#pragma unroll
      for (int s = 0; s < R; ++s) odd[s] = even[s];
      first_pass<R, false>(even, j, two_over_n);
      first_pass<R, true>(odd, j, two_over_n);
#pragma unroll
      for (int s = 0; s < R; ++s) {
        const int position = j + (s << plan.log_h());
        z[c * stride + spread(position)] = even[s];
        z[c * stride + spread(position + half)] = odd[s];
      }
    });
  });
  __syncthreads();
  forward(z, channels, plan.log_n, stride, plan.passes());

  for (int i = threadIdx.x; i < channels << (plan.log_n - 1); i += blockDim.x) {
    const int c = i >> (plan.log_n - 1), u = i & (half - 1);
    const float2* r = spectrum + ((d0 + c) << plan.log_n);
    float2* const row_z = z + c * stride;
    if (u > 0) {
      const Pair at = mirrored(u);
      float2 a = row_z[spread(at.first)], b = conj(row_z[spread(at.second)]);
      multiply(a, b, r[at.first], conj(r[at.second]),
               unit(static_cast<float>(reverse_bits(at.first, plan.log_n)) * two_over_n));
      row_z[spread(at.first)] = a;
      row_z[spread(at.second)] = conj(b);
    } else {
      for (int self = 0; self < 2; ++self) {
        float2 a = row_z[self], b = conj(a);
        multiply(a, b, r[self], conj(r[self]), make_float2(self ? -1.f : 1.f, 0.f));
        row_z[self] = a;
      }
    }
  }
  __syncthreads();

  inverse(z, channels, plan.log_n, stride, plan.passes());
  with_radix(plan.log_first(), [&](auto radix) {
    constexpr int R = decltype(radix)::value;
    each_butterfly(plan, channels, plan.time_first, [&](int c, int j) {
      float2 even[R], odd[R];
#pragma unroll
      for (int s = 0; s < R; ++s) {
        const int position = j + (s << plan.log_h());
        even[s] = z[c * stride + spread(position)];
        odd[s] = z[c * stride + spread(position + half)];
      }
      last_pass<R, false>(even, j, two_over_n);
      last_pass<R, true>(odd, j, two_over_n);
#pragma unroll
      for (int s = 0; s < R; ++s) even[s] = scale(add(even[s], odd[s]), 0.125f * two_over_n);
      store(even, plan, y, row, d0 + c, j);
    });
  });
}

// Transforms of one row, the even or the odd frequencies only: every second array of `z` from its first.
__device__ __forceinline__ void load_half(const Plan& plan, int channels, bool odd, const Sequence& x, int64_t row,
                                          int64_t d0, float2* z) {
  const float two_over_n = 2.f / static_cast<float>(plan.n());
  with_radix(plan.log_first(), [&](auto radix) {
    constexpr int R = decltype(radix)::value;
    each_butterfly(plan, channels, plan.time_first, [&](int c, int j) {
      float2 v[R];
      load(v, plan, x, row, d0 + c, j);
      if (odd) first_pass<R, true>(v, j, two_over_n);
      else first_pass<R, false>(v, j, two_over_n);
#pragma unroll
      for (int s = 0; s < R; ++s) z[2 * c * plan.half_stride() + spread(j + (s << plan.log_h()))] = v[s];
    });
  });
}

// What one row adds to the transform of the ring's gradient at f (first) and N - f (second, conjugate): the
// correlation of g (a and conj(b)) with x (c and conj(d)).
struct Correlation {
  float2 first, second;
};
__device__ __forceinline__ Correlation correlate(float2 a, float2 b, float2 c, float2 d, float2 v) {
  const float2 ac = mul_conj(a, c), bd = mul_conj(b, d), ad = mul_conj(a, d), bc = mul_conj(b, c);
  const float2 s = sub(ac, bd), t = sub(ad, bc);
  const float2 even = scale(add(ac, bd), 2.f), odd = sub(add(s, t), mul_conj(sub(s, t), v));
  return {add(even, odd), sub(even, odd)};
}

// Positions of a frequency and its mirror among the even or the odd ones; pair 0 of the even ones is two single ones.
__device__ __forceinline__ Pair mirrored_half(int u, int half, bool odd) {
  return odd ? Pair{u, half - 1 - u} : u > 0 ? mirrored(u) : Pair{0, 1};
}

// Sums a piece of the batch: partial (pieces, D, N), the transforms times 4. One block has C channels of the even or
// of the odd frequencies, so that the transforms of x and of grad_y fit side by side; its sums stay in registers.
__global__ void __launch_bounds__(kMaxThreads)
ring_gradient_kernel(Plan plan, int64_t batch, int64_t rows_per_piece, Sequence grad_y, Sequence x,
                     float2* __restrict__ partial) {
  FM_DYNAMIC_SHARED(float2, z);
  const bool odd = blockIdx.x & 1;
  const int64_t piece = (blockIdx.x >> 1) / plan.groups(), d0 = (blockIdx.x >> 1) % plan.groups() << plan.log_channels;
  const int channels = plan.channels_from(d0), half = plan.half(), stride = plan.half_stride();
  const int log_half = plan.log_n - 1, log_pairs = log_half - 1;
  const float two_over_n = 2.f / static_cast<float>(plan.n());
  const int64_t begin = piece * rows_per_piece, end = begin + rows_per_piece < batch ? begin + rows_per_piece : batch;
  Correlation sum[kPairs];
#pragma unroll
  for (int k = 0; k < kPairs; ++k) sum[k] = {make_float2(0.f, 0.f), make_float2(0.f, 0.f)};

  for (int64_t row = begin; row < end; ++row) {
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      Sequence in = grad_y;
      if (which > 0) in = x;
      load_half(plan, channels, odd, in, row, d0, z + which * stride);
    }
    __syncthreads();
    forward(z, 2 * channels, log_half, stride, plan.passes());
    const int thread = opaque(threadIdx.x);  // else eight twiddle factors would be kept over the rows, not in registers
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const int i = thread + k * blockDim.x, u = i & (half / 2 - 1);
      if (i >= channels << log_pairs) continue;
      const float2* const g = z + 2 * (i >> log_pairs) * stride;
      const float2* const h = g + stride;
      const Pair at = mirrored_half(u, half, odd);
      const int first = spread(at.first), second = spread(at.second);
      if (odd || u > 0) {
        const int f = 2 * reverse_bits(at.first, log_half) + odd;
        const Correlation more = correlate(g[first], conj(g[second]), h[first], conj(h[second]),
                                           unit(static_cast<float>(f) * two_over_n));
        sum[k] = {add(sum[k].first, more.first), add(sum[k].second, more.second)};
      } else {
        const Correlation more = correlate(g[0], conj(g[0]), h[0], conj(h[0]), make_float2(1.f, 0.f));
        const Correlation last = correlate(g[1], conj(g[1]), h[1], conj(h[1]), make_float2(-1.f, 0.f));
        sum[k] = {add(sum[k].first, more.first), add(sum[k].second, last.second)};
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
    const int i = threadIdx.x + k * blockDim.x, u = i & (half / 2 - 1);
    if (i >= channels << log_pairs) continue;
    const Pair at = mirrored_half(u, half, odd);
    float2* const out = partial + ((piece * plan.width + d0 + (i >> log_pairs)) << plan.log_n) + (odd ? half : 0);
    out[at.first] = sum[k].first;
    out[at.second] = conj(sum[k].second);
  }
}

// Adds the pieces up, in order, and transforms back: grad_ring (D, 2S).
__global__ void __launch_bounds__(kMaxThreads)
ring_gradient_finish_kernel(Plan plan, int64_t pieces, const float2* __restrict__ partial,
                            float* __restrict__ grad_ring) {
  FM_DYNAMIC_SHARED(float2, z);
  const int64_t d0 = static_cast<int64_t>(blockIdx.x) << plan.log_channels;
  const int channels = plan.channels_from(d0), n = plan.n(), half = plan.half(), stride = plan.stride();
  const float two_over_n = 2.f / static_cast<float>(n);
  for (int i = threadIdx.x; i < channels << plan.log_n; i += blockDim.x) {
    float2 sum = partial[(d0 << plan.log_n) + i];
    for (int64_t piece = 1; piece < pieces; ++piece) {
      sum = add(sum, partial[((piece * plan.width + d0) << plan.log_n) + i]);
    }
    z[(i >> plan.log_n) * stride + spread(i & (n - 1))] = sum;
  }
  __syncthreads();
  inverse(z, channels, plan.log_n, stride, plan.passes());
  with_radix(plan.log_first(), [&](auto radix) {
    constexpr int R = decltype(radix)::value;
    each_butterfly(plan, channels, true, [&](int c, int j) {
      float2* const out = reinterpret_cast<float2*>(grad_ring) + (d0 + c) * n;
      float2 even[R], odd[R];
#pragma unroll
      for (int s = 0; s < R; ++s) {
        const int position = j + (s << plan.log_h());
        even[s] = z[c * stride + spread(position)];
        odd[s] = z[c * stride + spread(position + half)];
      }
      last_pass<R, false>(even, j, two_over_n);
      last_pass<R, true>(odd, j, two_over_n);
#pragma unroll
      for (int s = 0; s < R; ++s) {
        const int position = j + (s << plan.log_h());
        out[position] = scale(add(even[s], odd[s]), 0.125f * two_over_n);
        out[position + half] = scale(sub(even[s], odd[s]), 0.125f * two_over_n);
      }
    });
  });
}

// Tiles of 32 x 32, read along the columns and written along the rows.
template <class T>
__global__ void __launch_bounds__(256)
transpose_kernel(const T* __restrict__ in, int64_t rows, int64_t columns, int64_t batch_stride, int64_t row_stride,
                 int64_t column_stride, T* __restrict__ out) {
  __shared__ T tile[32][33];
  const int64_t row_tiles = (rows + 31) / 32, column_tiles = (columns + 31) / 32;
  const int64_t b = blockIdx.x / (row_tiles * column_tiles), at = blockIdx.x % (row_tiles * column_tiles);
  const int64_t r0 = at / column_tiles * 32, c0 = at % column_tiles * 32;
  const int lane = threadIdx.x & 31;
  for (int k = threadIdx.x >> 5; k < 32; k += 8) {
    if (r0 + k < rows && c0 + lane < columns) {
      tile[k][lane] = in[b * batch_stride + (r0 + k) * row_stride + (c0 + lane) * column_stride];
    }
  }
  __syncthreads();
  for (int k = threadIdx.x >> 5; k < 32; k += 8) {
    if (c0 + k < columns && r0 + lane < rows) out[(b * columns + c0 + k) * rows + r0 + lane] = tile[lane][k];
  }
}

Plan plan_of(const RingShape& shape, bool time_first) {
  int log_channels = 0;
  while ((2 << log_channels) <= kMaxChannels && (shape.size() << (log_channels + 1)) <= kBlockPoints) ++log_channels;
  Plan plan{shape.length, shape.width, shape.log_size, log_channels, time_first, shape.dtype};
  // Small problems: fewer channels per block, as long as a warp still reads whole sectors.
  while (plan.log_channels > 3 && shape.batch * plan.groups() < kWantedBlocks) --plan.log_channels;
  return plan;
}

int64_t rows_per_piece(const RingShape& shape, const Plan& plan) {
  const int64_t blocks = 2 * plan.groups(), wanted = (kWantedBlocks + blocks - 1) / blocks;
  const int64_t pieces = wanted < shape.batch ? wanted : shape.batch;
  return (shape.batch + pieces - 1) / pieces;
}

int64_t pieces_of(const RingShape& shape, const Plan& plan) {
  const int64_t rows = rows_per_piece(shape, plan);
  return (shape.batch + rows - 1) / rows;
}

}  // namespace

int64_t ring_shared_bytes_cuda(int log_size) {
  RingShape shape;
  shape.log_size = log_size;
  shape.batch = kWantedBlocks;  // a large problem: the most channels per block
  shape.width = 1;
  return plan_of(shape, false).shared_bytes();
}

bool ring_prefers_time_last_cuda(const RingShape& shape) { return shape.log_size >= 12; }

int64_t ring_workspace_cuda(const RingShape& shape, bool gradient) {
  const int64_t spectra = shape.width * shape.size() * static_cast<int64_t>(sizeof(float2));
  return gradient ? spectra * pieces_of(shape, plan_of(shape, false)) : spectra;
}

int ring_convolution_cuda(const RingShape& shape, const Sequence& x, const float* ring, bool reversed,
                          const SequenceOut& y, void* workspace, void* stream) {
  const Plan plan = plan_of(shape, x.time == 1);
  float2* const spectrum = static_cast<float2*>(workspace);
  if (const int error = FM_MORE_SHARED(plan.shared_bytes(), ring_spectrum_kernel)) return error;
  FM_LAUNCH(static_cast<unsigned>(plan.groups()), plan.threads(), plan.shared_bytes(), stream, ring_spectrum_kernel)
  (plan, ring, reversed, spectrum);
  if (const int error = FM_MORE_SHARED(plan.shared_bytes(), ring_convolution_kernel)) return error;
  FM_LAUNCH(static_cast<unsigned>(shape.batch * plan.groups()), plan.threads(), plan.shared_bytes(), stream,
            ring_convolution_kernel)
  (plan, shape.batch, x, spectrum, y);
  return FM_LAST_ERROR();
}

int ring_gradient_cuda(const RingShape& shape, const Sequence& grad_y, const Sequence& x, float* grad_ring,
                       void* workspace, void* stream) {
  const Plan plan = plan_of(shape, x.time == 1);
  float2* const partial = static_cast<float2*>(workspace);
  const int64_t pieces = pieces_of(shape, plan);
  if (const int error = FM_MORE_SHARED(plan.shared_bytes(), ring_gradient_kernel)) return error;
  FM_LAUNCH(static_cast<unsigned>(2 * plan.groups() * pieces), plan.threads(), plan.shared_bytes(), stream,
            ring_gradient_kernel)
  (plan, shape.batch, rows_per_piece(shape, plan), grad_y, x, partial);
  if (const int error = FM_MORE_SHARED(plan.shared_bytes(), ring_gradient_finish_kernel)) return error;
  FM_LAUNCH(static_cast<unsigned>(plan.groups()), plan.threads(), plan.shared_bytes(), stream,
            ring_gradient_finish_kernel)
  (plan, pieces, partial, grad_ring);
  return FM_LAST_ERROR();
}

int transpose_cuda(const void* in, int64_t batch, int64_t rows, int64_t columns, int64_t batch_stride,
                   int64_t row_stride, int64_t column_stride, int bytes, void* out, void* stream) {
  const unsigned blocks = static_cast<unsigned>(batch * ((rows + 31) / 32) * ((columns + 31) / 32));
  if (bytes == 2) {
    FM_LAUNCH(blocks, 256, 0, stream, transpose_kernel<uint16_t>)
    (static_cast<const uint16_t*>(in), rows, columns, batch_stride, row_stride, column_stride,
     static_cast<uint16_t*>(out));
  } else {
    FM_LAUNCH(blocks, 256, 0, stream, transpose_kernel<uint32_t>)
    (static_cast<const uint32_t*>(in), rows, columns, batch_stride, row_stride, column_stride,
     static_cast<uint32_t*>(out));
  }
  return FM_LAST_ERROR();
}

}  // namespace fm
