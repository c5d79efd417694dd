// Normalised, turned queries and keys on the GPU: a warp for each row of a head, a lane for each pair of features; see
// rotary.h.
#include "rotary/rotary.h"

#include "common/cuda_rows.cuh"

namespace fm {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * kLanes;
constexpr int kForwardRows = 64;  // of a block
constexpr int kPairs = kBlockFeatures / 2 / kLanes;  // whose sums a lane has in the backward pass

struct Pair {
  float a, b;
};

template <class T>
__device__ __forceinline__ Pair get_pair(const void* data, int64_t index) {
  return {get<T>(data, index), get<T>(data, index + 1)};
}

template <class T>
__device__ __forceinline__ void put_pair(void* data, int64_t index, Pair value) {
  put<T>(data, index, value.a);
  put<T>(data, index + 1, value.b);
}

// v turned by the angles of a position, or back; `turn` (2, E) begins at the pair.
__device__ __forceinline__ Pair turned(Pair v, const float* turn, int64_t features, float direction) {
  return {v.a * turn[0] + direction * v.b * turn[features], v.b * turn[1] + direction * v.a * turn[features + 1]};
}

// Scales of a pair of features, from column `index` of (2, heads E).
__device__ __forceinline__ Pair scale_of(const RotaryInputs& in, int64_t index) {
  const Pair s = get_pair<float>(in.scale, index);
  return in.unit == 0.f ? s : Pair{(s.a + 1.f) * in.unit, (s.b + 1.f) * in.unit};
}

__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// A row of one head.
struct Head {
  int64_t row, first;  // column of its first feature
  const float* turn;   // of its position

  __device__ __forceinline__ Head(const RotaryShape& shape, const RotaryInputs& in, int64_t row, int64_t head)
      : row(row), first(head * shape.features), turn(in.turns + shape.position(row) * 2 * shape.features) {}
};

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    rotary_forward_kernel(RotaryShape shape, RotaryInputs in, void* query, void* key) {
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int64_t begin = blockIdx.x / shape.heads * kForwardRows;
  for (int64_t row = begin + warp; row < begin + kForwardRows && row < shape.rows; row += kWarps) {
    const Head head(shape, in, row, blockIdx.x % shape.heads);
    float squares = 0.f;
    for (int64_t i = 2 * lane; i < shape.features; i += 2 * kLanes) {
      const Pair x = get_pair<T>(in.x, row * in.stride + head.first + i);
      squares += x.a * x.a + x.b * x.b;
    }
    const float root = rsqrtf(sum_of_warp(squares) / static_cast<float>(shape.features) + shape.eps);
    for (int64_t i = 2 * lane; i < shape.features; i += 2 * kLanes) {
      const int64_t column = head.first + i, place = row * shape.width + column;
      const Pair x = get_pair<T>(in.x, row * in.stride + column);
      for (int j = 0; j < 2; ++j) {
        const Pair scale = scale_of(in, j * shape.width + column), offset = get_pair<float>(in.offset, j * shape.width + column);
        const Pair v{offset.a + x.a * root * scale.a, offset.b + x.b * root * scale.b};
        put_pair<T>(j ? key : query, place, turned(v, head.turn + i, shape.features, 1.f));
      }
    }
  }
}

// Of a pair of features of a row: x, and the gradients of v and, from them, of n.
struct Gradients {
  Pair x, v[2], n;
};

template <class T>
__device__ __forceinline__ Gradients gradients_of(const RotaryShape& shape, const RotaryInputs& in,
                                                  const RotaryGradients& gradients, const Head& head, int64_t i) {
  const int64_t column = head.first + i, place = head.row * shape.width + column;
  Gradients g{get_pair<T>(in.x, head.row * in.stride + column), {}, {0.f, 0.f}};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const Pair of_y = get_pair<T>(j ? gradients.key : gradients.query, place);
    const Pair scale = scale_of(in, j * shape.width + column);
    g.v[j] = turned(of_y, head.turn + i, shape.features, -1.f);
    g.n.a += g.v[j].a * scale.a;
    g.n.b += g.v[j].b * scale.b;
  }
  return g;
}

// A block has some features of one head, in a part of the rows.
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    rotary_backward_kernel(RotaryShape shape, RotaryInputs in, RotaryGradients gradients) {
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int64_t blocks = shape.blocks_of_head(), tile = blockIdx.x % (shape.heads * blocks);
  const int64_t head_index = tile / blocks, part = blockIdx.x / (shape.heads * blocks);
  const int64_t first = tile % blocks * kBlockFeatures + 2 * lane;  // of the lane's features
  const float share = 1.f / static_cast<float>(shape.features), unit = in.unit == 0.f ? 1.f : in.unit;
  float sums[kPairs][8] = {};  // of scales, then of offsets: query a, b, key a, b
  for (int64_t row = shape.begin(part) + warp; row < shape.end(part); row += kWarps) {
    const Head head(shape, in, row, head_index);
    float squares = 0.f, products = 0.f;
    for (int64_t i = 2 * lane; i < shape.features; i += 2 * kLanes) {
      const Gradients g = gradients_of<T>(shape, in, gradients, head, i);
      squares += g.x.a * g.x.a + g.x.b * g.x.b;
      products += g.n.a * g.x.a + g.n.b * g.x.b;
    }
    const float root = rsqrtf(sum_of_warp(squares) * share + shape.eps);
    const float slope = sum_of_warp(products) * root * share;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const int64_t i = first + p * 2 * kLanes;
      if (i >= shape.features) continue;
      const Gradients g = gradients_of<T>(shape, in, gradients, head, i);
      const Pair n{g.x.a * root, g.x.b * root};
      put_pair<T>(gradients.x, row * shape.width + head.first + i,
                  {(g.n.a - n.a * slope) * root, (g.n.b - n.b * slope) * root});
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        sums[p][2 * j] += g.v[j].a * n.a;
        sums[p][2 * j + 1] += g.v[j].b * n.b;
        sums[p][4 + 2 * j] += g.v[j].a;
        sums[p][5 + 2 * j] += g.v[j].b;
      }
    }
  }
  const RowSums& out = gradients.coefficients;
  const auto exists = [&](int p) { return first + p * 2 * kLanes < shape.features; };
  const auto place = [&](int64_t part, int p, int sum) {
    return (part * 4 + sum / 2) * shape.width + head_index * shape.features + first + p * 2 * kLanes + sum % 2;
  };
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    add_warps<kWarps>(sums[p], [&](int sum, float total) {
      if (exists(p)) out.parts[place(part, p, sum)] = sum < 4 ? total * unit : total;
    });
    __syncthreads();
  }
  if (!is_last_block(out.counters + tile, shape.parts())) return;
  for (int p = 0; p < kPairs; ++p) {
    add_parts<kWarps, 8>(
        shape.parts(), [&](int64_t part, int sum) { return exists(p) ? out.parts[place(part, p, sum)] : 0.f; },
        [&](int sum, float total) {
          if (exists(p)) out.total[place(0, p, sum)] = total;
        });
    __syncthreads();
  }
}

}  // namespace

int rotary_forward_cuda(const RotaryShape& shape, const RotaryInputs& in, void* query, void* key, void* stream) {
  const auto kernel = with_cuda_type(shape.dtype, [](auto type) { return rotary_forward_kernel<decltype(type)>; });
  const auto blocks = static_cast<unsigned>((shape.rows + kForwardRows - 1) / kForwardRows * shape.heads);
  FM_LAUNCH(blocks, kThreads, 0, stream, kernel)(shape, in, query, key);
  return FM_LAST_ERROR();
}

int rotary_backward_cuda(const RotaryShape& shape, const RotaryInputs& in, const RotaryGradients& gradients,
                         void* stream) {
  const auto kernel = with_cuda_type(shape.dtype, [](auto type) { return rotary_backward_kernel<decltype(type)>; });
  const auto blocks = static_cast<unsigned>(shape.parts() * shape.heads * shape.blocks_of_head());
  FM_LAUNCH(blocks, kThreads, 0, stream, kernel)(shape, in, gradients);
  return FM_LAST_ERROR();
}

}  // namespace fm
