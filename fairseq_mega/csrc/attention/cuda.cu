// Attention weights of blocks of queries, forward and backward, on the GPU (see attention.h).
//
// Softmax: a row of up to 1024 keys belongs to a warp, a longer one to a block of threads; up to 8192 keys it is read
// once and stays in registers, beyond that twice. relu2 and laplace: a warp per row, element by element. The bias's
// gradient: a second kernel walks down the diagonals, strip by strip of rows, a third adds the strips up in a fixed
// order.
#include "attention/cuda.cuh"

namespace fm {
namespace {

constexpr int kStrip = 64;             // rows that a thread of the diagonal kernel walks down
constexpr int kDiagonalThreads = 128;  // of the kernels along diagonals
constexpr int kGroupParts = 64;        // shares of the groups that are summed apart
constexpr int kWarpRows = 4;           // rows of a block where each belongs to a warp

struct Place {
  int64_t g, r;
  bool exists;
};

__device__ __forceinline__ Place place(const AttentionBlock& block) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  return {index / block.rows, index % block.rows, index < block.groups * block.rows};
}

__device__ __forceinline__ int64_t statistics_index(const AttentionBlock& block, const Place& at) {
  return (block.first_group + at.g) * block.queries + block.first_row + at.r;
}

// Logits and weights may be one buffer: every thread reads its elements before it writes them.
template <int kThreads, int kPer>
__global__ void __launch_bounds__(kThreads == 32 ? 32 * kWarpRows : kThreads)
    softmax_kernel(AttentionBlock block, DType dtype, const float* logits, void* weights,
                   AttentionStatistics* statistics) {
  __shared__ float shared[kThreads / 32];
  const Place at = place(block);
  if (!at.exists) return;  // a whole warp, or no one
  const AttentionRow row = attention_row(block, at.g, at.r);
  const int64_t start = (at.g * block.rows + at.r) * block.columns;
  const int thread = threadIdx.x;
  float top = -INFINITY, sum = 0.f;
  if constexpr (kPer > 0) {
    float x[kPer], factor[kPer];
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int64_t j = thread + i * kThreads;
      const float product = j < row.seen ? logits[start + j] : 0.f;
      const AttentionElement element = attention_element(block, row, product, j);
      x[i] = element.x;
      factor[i] = element.factor;
      top = Larger()(top, x[i]);
    }
    top = reduce<kThreads>(top, Larger(), shared);
    if (top == -INFINITY) top = 0.f;  // DropKey left nothing
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      x[i] = expf(x[i] - top);
      sum += x[i];
    }
    sum = reduce<kThreads>(sum, Plus(), shared);
    const float normal = sum > 0.f ? 1.f / sum : 0.f;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int64_t j = thread + i * kThreads;
      if (j < block.columns) store_as(dtype, weights, start + j, x[i] * normal * factor[i]);
    }
  } else {
    for (int64_t j = thread; j < row.seen; j += kThreads) {
      const float x = attention_element(block, row, logits[start + j], j).x;
      const float larger = Larger()(top, x);
      if (larger == -INFINITY) continue;
      sum = sum * expf(top - larger) + expf(x - larger);
      top = larger;
    }
    const float mine = top;
    top = reduce<kThreads>(top, Larger(), shared);
    if (top == -INFINITY) top = 0.f;
    sum = reduce<kThreads>(sum * expf(mine - top), Plus(), shared);
    const float normal = sum > 0.f ? 1.f / sum : 0.f;
    for (int64_t j = thread; j < block.columns; j += kThreads) {
      const AttentionElement element = attention_element(block, row, j < row.seen ? logits[start + j] : 0.f, j);
      store_as(dtype, weights, start + j, expf(element.x - top) * normal * element.factor);
    }
  }
  if (thread == 0) statistics[statistics_index(block, at)] = {top, sum > 0.f ? 1.f / sum : 0.f};
}

// As above. `keep` (or null): float32 gradients of the logits for the diagonal kernel, where grad_logits is narrower.
template <int kThreads, int kPer>
__global__ void __launch_bounds__(kThreads == 32 ? 32 * kWarpRows : kThreads)
    softmax_backward_kernel(AttentionBlock block, DType dtype, const AttentionStatistics* statistics,
                            const float* logits, const float* grad_weights, void* weights, void* grad_logits,
                            float* keep) {
  __shared__ float shared[kThreads / 32];
  const Place at = place(block);
  if (!at.exists) return;
  const AttentionRow row = attention_row(block, at.g, at.r);
  const AttentionStatistics found = statistics[statistics_index(block, at)];
  const int64_t start = (at.g * block.rows + at.r) * block.columns;
  const int thread = threadIdx.x;
  float mean = 0.f;
  const auto finish = [&](int64_t j, float weight, float grad, float factor) {
    const float grad_logit = weight * (grad - mean) * row.scale;
    store_as(dtype, weights, start + j, weight * factor);
    store_as(dtype, grad_logits, start + j, grad_logit);
    if (keep) keep[start + j] = grad_logit;
  };
  if constexpr (kPer > 0) {
    float weight[kPer], grad[kPer];
    uint32_t dropped = 0;
    static_assert(kPer <= 32, "a bit per element");
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int64_t j = thread + i * kThreads;
      const bool seen = j < row.seen;
      const AttentionElement element = attention_element(block, row, seen ? logits[start + j] : 0.f, j);
      weight[i] = expf(element.x - found.maximum) * found.factor;
      grad[i] = (seen ? grad_weights[start + j] : 0.f) * element.factor;
      dropped |= static_cast<uint32_t>(element.factor == 0.f) << i;
      mean += weight[i] * grad[i];
    }
    mean = reduce<kThreads>(mean, Plus(), shared);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int64_t j = thread + i * kThreads;
      if (j < block.columns) finish(j, weight[i], grad[i], dropped >> i & 1u ? 0.f : block.kept);
    }
  } else {
    for (int64_t j = thread; j < row.seen; j += kThreads) {
      const AttentionElement element = attention_element(block, row, logits[start + j], j);
      mean += expf(element.x - found.maximum) * found.factor * grad_weights[start + j] * element.factor;
    }
    mean = reduce<kThreads>(mean, Plus(), shared);
    for (int64_t j = thread; j < block.columns; j += kThreads) {
      const bool seen = j < row.seen;
      const AttentionElement element = attention_element(block, row, seen ? logits[start + j] : 0.f, j);
      const float weight = expf(element.x - found.maximum) * found.factor;
      finish(j, weight, (seen ? grad_weights[start + j] : 0.f) * element.factor, element.factor);
    }
  }
}

// relu2 and laplace.
__global__ void __launch_bounds__(32 * kWarpRows)
    pointwise_kernel(AttentionBlock block, DType dtype, const float* logits, void* weights) {
  const Place at = place(block);
  if (!at.exists) return;
  const AttentionRow row = attention_row(block, at.g, at.r);
  const int64_t start = (at.g * block.rows + at.r) * block.columns;
  for (int64_t j = threadIdx.x; j < block.columns; j += 32) {
    const AttentionElement element = attention_element(block, row, j < row.seen ? logits[start + j] : 0.f, j);
    store_as(dtype, weights, start + j, attention_value(block.function, element.x).weight * element.factor);
  }
}

__global__ void __launch_bounds__(32 * kWarpRows)
    pointwise_backward_kernel(AttentionBlock block, DType dtype, const float* logits, const float* grad_weights,
                              void* weights, void* grad_logits, float* keep) {
  const Place at = place(block);
  if (!at.exists) return;
  const AttentionRow row = attention_row(block, at.g, at.r);
  const int64_t start = (at.g * block.rows + at.r) * block.columns;
  for (int64_t j = threadIdx.x; j < block.columns; j += 32) {
    const bool seen = j < row.seen;
    const AttentionElement element = attention_element(block, row, seen ? logits[start + j] : 0.f, j);
    const AttentionValue f = attention_value(block.function, element.x);
    const float grad = f.slope * (seen ? grad_weights[start + j] : 0.f) * element.factor * row.scale;
    store_as(dtype, weights, start + j, f.weight * element.factor);
    store_as(dtype, grad_logits, start + j, grad);
    if (keep) keep[start + j] = grad;
  }
}

int64_t strips(const AttentionBlock& block) { return (block.rows + kStrip - 1) / kStrip; }

int64_t group_parts(const AttentionBlock& block) { return block.groups < kGroupParts ? block.groups : kGroupParts; }

// Thread d of a strip adds up column first row + d - (kStrip - 1), one further right in each row.
__global__ void __launch_bounds__(kDiagonalThreads)
    diagonal_kernel(AttentionBlock block, const float* grad_logits, float* partials) {
  const int64_t diagonals = block.columns + kStrip - 1;
  const int64_t d = static_cast<int64_t>(blockIdx.x) * kDiagonalThreads + threadIdx.x;
  if (d >= diagonals) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kStrip;
  const int64_t left = d - (kStrip - 1);
  // Rows of the strip whose column on this diagonal exists.
  const int64_t from = left < 0 ? -left : 0;
  const int64_t rows = block.rows - first < kStrip ? block.rows - first : kStrip;
  const int64_t to = block.columns - left < rows ? block.columns - left : rows;
  float sum = 0.f;
  for (int64_t g = blockIdx.z; g < block.groups; g += gridDim.z) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t r = first + i, query = block.first_row + r;
      float inverse = 1.f / block.scale;
      if (block.scale == 0.f) {
        const int64_t limit = block.causal ? block.keys - block.queries + query + 1 : block.keys;
        const int64_t count = block.counts ? block.counts[(block.first_group + g) * block.queries + query] : limit;
        inverse = static_cast<float>(count > 0 ? count : limit);
      }
      sum += grad_logits[(g * block.rows + r) * block.columns + left + i] * inverse;
    }
  }
  partials[(static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * diagonals + d] = sum;
}

__global__ void __launch_bounds__(kDiagonalThreads)
    bias_kernel(AttentionBlock block, int64_t parts, int64_t count, const float* partials, double* grad_bias) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kDiagonalThreads + threadIdx.x;
  if (b >= block.queries + block.keys - 1) return;
  const int64_t diagonals = block.columns + kStrip - 1;
  double sum = 0.;
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t strip = 0; strip < count; ++strip) {
      const int64_t start = block.queries - 1 - (block.first_row + strip * kStrip + kStrip - 1);
      if (b >= start && b - start < diagonals) sum += partials[(part * count + strip) * diagonals + b - start];
    }
  }
  grad_bias[b] += sum;
}

unsigned row_blocks(const AttentionBlock& block, int rows_per_block) {
  return static_cast<unsigned>((block.groups * block.rows + rows_per_block - 1) / rows_per_block);
}

// Calls launch(threads per row, elements per thread), both constants, for the smallest shape that holds a row.
template <int kThreads, int kPer>
struct RowShape {};

template <class Launch>
void for_row_shape(int64_t columns, Launch launch) {
  if (columns <= 32 * 4) return launch(RowShape<32, 4>());
  if (columns <= 32 * 8) return launch(RowShape<32, 8>());
  if (columns <= 32 * 32) return launch(RowShape<32, 32>());
  if (columns <= 256 * 16) return launch(RowShape<256, 16>());
  if (columns <= 512 * 16) return launch(RowShape<512, 16>());
  launch(RowShape<512, 0>());
}

struct ForwardLaunch {
  const AttentionBlock& block;
  DType dtype;
  const float* logits;
  void* weights;
  AttentionStatistics* statistics;
  void* stream;
  template <int kThreads, int kPer>
  void operator()(RowShape<kThreads, kPer>) const {
    constexpr int rows = kThreads == 32 ? kWarpRows : 1;
    FM_LAUNCH(dim3(row_blocks(block, rows)), dim3(kThreads, rows), 0, stream, softmax_kernel<kThreads, kPer>)
    (block, dtype, logits, weights, statistics);
  }
};

struct BackwardLaunch {
  const AttentionBlock& block;
  DType dtype;
  const AttentionStatistics* statistics;
  const float *logits, *grad_weights;
  void *weights, *grad_logits;
  float* keep;
  void* stream;
  template <int kThreads, int kPer>
  void operator()(RowShape<kThreads, kPer>) const {
    constexpr int rows = kThreads == 32 ? kWarpRows : 1;
    FM_LAUNCH(dim3(row_blocks(block, rows)), dim3(kThreads, rows), 0, stream, softmax_backward_kernel<kThreads, kPer>)
    (block, dtype, statistics, logits, grad_weights, weights, grad_logits, keep);
  }
};

bool empty(const AttentionBlock& block) { return block.groups * block.rows * block.columns == 0; }

}  // namespace

int attention_weights_cuda(const AttentionBlock& block, DType dtype, const float* logits, void* weights,
                           AttentionStatistics* statistics, void* stream) {
  if (empty(block)) return 0;
  if (block.function == AttentionFunction::kSoftmax) {
    for_row_shape(block.columns, ForwardLaunch{block, dtype, logits, weights, statistics, stream});
  } else {
    FM_LAUNCH(dim3(row_blocks(block, kWarpRows)), dim3(32, kWarpRows), 0, stream, pointwise_kernel)
    (block, dtype, logits, weights);
  }
  return FM_LAST_ERROR();
}

int64_t attention_partials_cuda(const AttentionBlock& block) {
  return group_parts(block) * strips(block) * (block.columns + kStrip - 1);
}

int attention_weights_backward_cuda(const AttentionBlock& block, const AttentionGradients& g, DType dtype,
                                    const float* logits, float* grad_weights, void* weights, void* grad_logits,
                                    void* stream) {
  if (empty(block)) return 0;
  float* keep = g.partials && static_cast<void*>(grad_weights) != grad_logits ? grad_weights : nullptr;
  if (block.function == AttentionFunction::kSoftmax) {
    for_row_shape(block.columns, BackwardLaunch{block, dtype, g.statistics, logits, grad_weights, weights, grad_logits,
                                                keep, stream});
  } else {
    FM_LAUNCH(dim3(row_blocks(block, kWarpRows)), dim3(32, kWarpRows), 0, stream, pointwise_backward_kernel)
    (block, dtype, logits, grad_weights, weights, grad_logits, keep);
  }
  int error = FM_LAST_ERROR();
  if (error != 0 || !g.partials) return error;
  const dim3 grid(static_cast<unsigned>((block.columns + kStrip - 1 + kDiagonalThreads - 1) / kDiagonalThreads),
                  static_cast<unsigned>(strips(block)), static_cast<unsigned>(group_parts(block)));
  FM_LAUNCH(grid, dim3(kDiagonalThreads), 0, stream, diagonal_kernel)(block, grad_weights, g.partials);
  return FM_LAST_ERROR();
}

int attention_bias_cuda(const AttentionBlock& block, const float* partials, double* grad_bias, void* stream) {
  if (empty(block)) return 0;
  const int64_t size = block.queries + block.keys - 1;
  FM_LAUNCH(dim3(static_cast<unsigned>((size + kDiagonalThreads - 1) / kDiagonalThreads)), dim3(kDiagonalThreads), 0,
            stream, bias_kernel)
  (block, group_parts(block), strips(block), partials, grad_bias);
  return FM_LAST_ERROR();
}

}  // namespace fm
