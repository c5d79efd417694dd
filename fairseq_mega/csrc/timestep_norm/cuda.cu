// Timestep normalisation on CUDA; cuda.cuh describes how the work is laid out.
#include "timestep_norm/cuda.cuh"

#include <algorithm>

#include "common/launch.h"

namespace fm {
namespace {

constexpr int kMaxGroups = 16;          // of a block
constexpr int kBlockFeatures = 64;      // aimed at in a block
constexpr int64_t kEnoughBlocks = 512;  // with fewer, every tile gets a block of its own

// Statistics of each tile alone, one block per tile.
template <class T>
__global__ void __launch_bounds__(kNormThreads, 2) summary_kernel(Problem<T> p) {
  FM_DYNAMIC_SHARED(unsigned char, memory);
  __shared__ Segment carried[kMaxGroups];
  const Place here(p);
  const Rows rows(memory, kNormTile * p.block_groups, false);
  Segment* out = p.before;
  p.before = nullptr;
  if (threadIdx.x < here.groups) carried[threadIdx.x] = {0.0, 0.0, 0.0};
  find_moments(p, here, here.first_tile * kNormTile, rows);
  __syncthreads();
  scan_steps(p, here, here.first_tile * kNormTile, rows, carried);
  __syncthreads();
  if (threadIdx.x < here.groups) {
    out[(here.sequence * (p.tiles + 1) + here.first_tile) * p.groups + here.group + threadIdx.x] = carried[threadIdx.x];
  }
}

// Turns the statistics of tiles into those before each tile, in place; one warp per sequence and group.
template <class T>
__global__ void __launch_bounds__(kNormThreads, 2) prefix_kernel(Problem<T> p, int64_t sequences) {
  const int lane = threadIdx.x % 32;
  const int64_t at = int64_t{blockIdx.x} * kNormWarps + threadIdx.x / 32;
  if (at >= sequences * p.groups) return;
  const int64_t sequence = at / p.groups, group = at % p.groups;
  Segment* tiles = p.before + sequence * (p.tiles + 1) * p.groups + group;
  Segment carried = carried_into(p, sequence, static_cast<int>(group));
  for (int64_t base = 0; base < p.tiles; base += 32) {
    const bool exists = base + lane < p.tiles;
    const Segment own = exists ? tiles[(base + lane) * p.groups] : Segment{0.0, 0.0, 0.0};
    const Segment inclusive = scanned(own, lane);
    const Segment before = shuffled_up(inclusive, 1);
    if (exists) tiles[(base + lane) * p.groups] = lane == 0 ? carried : merged(carried, before);
    const Segment all{__shfl_sync(kAllLanes, inclusive.count, 31), __shfl_sync(kAllLanes, inclusive.mean, 31),
                      __shfl_sync(kAllLanes, inclusive.variance, 31)};
    carried = merged(carried, all);
  }
  if (lane == 0) tiles[p.tiles * p.groups] = carried;
}

template <class T>
__global__ void __launch_bounds__(kNormThreads, 2) forward_kernel(Problem<T> p, TimestepNormOutputs out) {
  FM_DYNAMIC_SHARED(unsigned char, memory);
  __shared__ Segment carried[kMaxGroups];
  const Place here(p);
  const Rows rows(memory, kNormTile * p.block_groups, false);
  if (threadIdx.x < here.groups) carried[threadIdx.x] = carried_in(p, here, here.first_tile, threadIdx.x);
  for (int64_t tile = here.first_tile; tile < here.end_tile; ++tile) {
    const int64_t start = tile * kNormTile;
    find_moments(p, here, start, rows);
    __syncthreads();
    scan_steps(p, here, start, rows, carried);
    __syncthreads();
    const int across = here.width < kNormThreads ? here.width : kNormThreads, slices = kNormThreads / across;
    const int slice = threadIdx.x / across;
    for (int channel = threadIdx.x % across; channel < here.width && slice < slices; channel += across) {
      const float w = 1.f + p.weight[here.channel + channel], b = p.bias[here.channel + channel];
      const int group = channel / p.features;
      for (int t = slice; t < kNormTile && start + t < p.length; t += slices) {
        const int64_t at = (here.sequence * p.length + start + t) * p.width + here.channel + channel;
        const int row = t * here.groups + group;
        const float r = rows.scale[row];  // 0 marks padding; such an x may be anything
        const float v = r == 0.f ? 0.f : ((read_value(p.x + at) - rows.high[row]) - rows.low[row]) * r * w + b;
        write_value(static_cast<T*>(out.y) + at, v);
      }
    }
    // No barrier: the next tile's moments go to rows that are not read here.
  }
  if (here.end_tile == p.tiles && threadIdx.x < here.groups) {
    const Segment last = carried[threadIdx.x];
    const int64_t at = here.sequence * p.groups + here.group + threadIdx.x;
    const bool some = last.count > 0.0;
    out.mean[at] = some ? last.mean : p.mean ? p.mean[at] : 0.0;
    out.variance[at] = some ? last.variance : p.variance ? p.variance[at] : 1.0;
    if (here.group + threadIdx.x == 0) out.count[here.sequence] = static_cast<int64_t>(last.count);
  }
}

// Gradients that come in and go out.
template <class T>
struct Gradients {
  const T* grad_y;
  const double *grad_final_mean, *grad_final_variance;  // or null
  T* grad_x;
  float *grad_weight, *grad_bias;  // (B ranges, D)
  int64_t stride;                  // of these two
  double *grad_mean, *grad_variance;  // or null
  Adjoint* tiles;  // (B, tiles, G): what each tile does to (tau, nu), then tau and nu after it; null if one block has all
};

__device__ __forceinline__ double value_or_zero(const double* data, int64_t at) { return data ? data[at] : 0.0; }

// (tau, nu) after the last step.
template <class T>
__device__ __forceinline__ TauNu at_the_end(const Problem<T>& p, const Gradients<T>& g, int64_t sequence, int group) {
  const double count = p.before[(sequence * (p.tiles + 1) + p.tiles) * p.groups + group].count;
  if (count == 0.0) return {0.0, 0.0};
  const int64_t at = sequence * p.groups + group;
  return {value_or_zero(g.grad_final_variance, at) / count, value_or_zero(g.grad_final_mean, at) / count};
}

// A_t and B_t of every row.
template <class T>
__device__ void find_sums(const Problem<T>& p, const Gradients<T>& g, const Place& here, int64_t start,
                          const Rows& rows) {
  const int lanes = p.lanes, lane = threadIdx.x % lanes, per_round = kNormThreads / lanes;
  for (int base = 0; base < kNormTile * here.groups; base += per_round) {
    const int row = base + static_cast<int>(threadIdx.x) / lanes;
    float sum = 0.f, moment = 0.f;
    if (row < kNormTile * here.groups && rows.share[row] != 0.f) {
      const int64_t channel = here.channel + row % here.groups * p.features;
      const int64_t at = (here.sequence * p.length + start + row / here.groups) * p.width + channel;
      const float high = rows.high[row], low = rows.low[row];
      for (int i = lane; i < p.features; i += lanes) {
        const float h = read_value(g.grad_y + at + i) * (1.f + p.weight[channel + i]);
        sum += h;
        moment += h * ((read_value(p.x + at + i) - high) - low);
      }
    }
    sum = sum_over(sum, lanes);
    moment = sum_over(moment, lanes);
    if (lane == 0 && row < kNormTile * here.groups) {
      rows.sum[row] = sum;
      rows.moment[row] = moment;
    }
  }
}

// What one step does to (tau, nu); `direct` has only the part that comes before its own gradient is read off.
__device__ __forceinline__ Adjoint step_back(const Rows& rows, int row) {
  const double r = rows.scale[row], share = rows.share[row], moved = rows.moved[row];
  const double a = -0.5 * r * r * r * rows.moment[row] * share, b = -r * rows.sum[row] * share;
  return {a, b - 2.0 * a * moved, moved};
}

// One warp per group, from the last step to the first: nu / K and 2 tau / K of each step from (tau, nu) after the tile,
// `carried`, which becomes those before it. With `alone`, only what the tile does to them.
template <class T>
__device__ void scan_back(const Problem<T>& p, const Place& here, const Rows& rows, TauNu* carried, Adjoint* alone) {
  const int lane = threadIdx.x % 32;
  const double part = 1.0 / p.features;
  for (int group = threadIdx.x / 32; group < here.groups; group += kNormWarps) {
    const int first = 2 * lane * here.groups + group, second = first + here.groups;
    const Adjoint early = step_back(rows, first), late = step_back(rows, second);
    const Adjoint inclusive = scanned_back(after_then(late, early), lane);
    if (alone) {
      if (lane == 0) alone[group] = inclusive;
      continue;
    }
    const Adjoint after = shuffled_down(inclusive, 1);
    const TauNu end = lane == 31 ? carried[group] : applied(after, carried[group]);
    const TauNu middle = applied(late, end), start = applied(early, middle);
    // The step's own x sees nu before it moves on to M_{t-1}.
    rows.sum[second] = static_cast<float>((middle.nu + 2.0 * middle.tau * late.moved) * part);
    rows.moment[second] = static_cast<float>(2.0 * middle.tau * part);
    rows.sum[first] = static_cast<float>((start.nu + 2.0 * start.tau * early.moved) * part);
    rows.moment[first] = static_cast<float>(2.0 * start.tau * part);
    __syncwarp();
    if (lane == 0) carried[group] = start;
  }
}

// What each tile does to (tau, nu), one block per tile.
template <class T>
__global__ void __launch_bounds__(kNormThreads, 2) backward_summary_kernel(Problem<T> p, Gradients<T> g) {
  FM_DYNAMIC_SHARED(unsigned char, memory);
  __shared__ Segment carried[kMaxGroups];
  const Place here(p);
  const Rows rows(memory, kNormTile * p.block_groups, true);
  const int64_t start = here.first_tile * kNormTile;
  if (threadIdx.x < here.groups) carried[threadIdx.x] = carried_in(p, here, here.first_tile, threadIdx.x);
  find_moments(p, here, start, rows);
  __syncthreads();
  scan_steps(p, here, start, rows, carried);
  __syncthreads();
  find_sums(p, g, here, start, rows);
  __syncthreads();
  scan_back(p, here, rows, nullptr, g.tiles + (here.sequence * p.tiles + here.first_tile) * p.groups + here.group);
}

// Turns that into (tau, nu) after each tile, in place (in a and b); one warp per sequence and group.
template <class T>
__global__ void __launch_bounds__(kNormThreads, 2) suffix_kernel(Problem<T> p, Gradients<T> g, int64_t sequences) {
  const int lane = threadIdx.x % 32;
  const int64_t at = int64_t{blockIdx.x} * kNormWarps + threadIdx.x / 32;
  if (at >= sequences * p.groups) return;
  const int64_t sequence = at / p.groups, group = at % p.groups;
  Adjoint* tiles = g.tiles + sequence * p.tiles * p.groups + group;
  TauNu carried = at_the_end(p, g, sequence, static_cast<int>(group));
  for (int64_t end = p.tiles; end > 0; end -= 32) {  // lane 31 has the last of these 32 tiles
    const int64_t tile = end - 32 + lane;
    const Adjoint own = tile >= 0 ? tiles[tile * p.groups] : Adjoint{0.0, 0.0, 0.0};
    const Adjoint inclusive = scanned_back(own, lane);
    const Adjoint after = shuffled_down(inclusive, 1);
    const TauNu state = lane == 31 ? carried : applied(after, carried);
    if (tile >= 0) tiles[tile * p.groups] = {state.tau, state.nu, 0.0};
    const Adjoint all{__shfl_sync(kAllLanes, inclusive.a, 0), __shfl_sync(kAllLanes, inclusive.b, 0),
                      __shfl_sync(kAllLanes, inclusive.moved, 0)};
    carried = applied(all, carried);
  }
}

// Step 3 of the backward pass: grad_x, and the tile's part of the gradients of weight and bias.
template <class T>
__device__ void write_gradients(const Problem<T>& p, const Gradients<T>& g, const Place& here, int64_t start,
                                const Rows& rows, float (&partial)[2][kNormThreads], bool add) {
  const int across = here.width < kNormThreads ? here.width : kNormThreads, slices = kNormThreads / across;
  const int slice = threadIdx.x / across;
  for (int base = 0; base < here.width; base += across) {  // uniform: there are barriers inside
    const int channel = base + static_cast<int>(threadIdx.x) % across;
    const bool exists = slice < slices && channel < here.width;
    float grad_weight = 0.f, grad_bias = 0.f;
    if (exists) {
      const float w = 1.f + p.weight[here.channel + channel];
      const int group = channel / p.features;
      for (int t = slice; t < kNormTile && start + t < p.length; t += slices) {
        const int64_t at = (here.sequence * p.length + start + t) * p.width + here.channel + channel;
        const int row = t * here.groups + group;
        float v = 0.f;
        if (rows.share[row] != 0.f) {
          const float r = rows.scale[row], gradient = read_value(g.grad_y + at);
          const float distance = (read_value(p.x + at) - rows.high[row]) - rows.low[row];
          v = gradient * w * r + (rows.sum[row] + rows.moment[row] * distance);
          grad_weight += gradient * distance * r;
          grad_bias += gradient;
        }
        write_value(g.grad_x + at, v);
      }
    }
    // A second round, of more than kNormThreads features, has one slice and reads no other thread's sums.
    partial[0][threadIdx.x] = grad_weight;
    partial[1][threadIdx.x] = grad_bias;
    __syncthreads();
    if (exists && slice == 0) {
      for (int other = 1; other < slices; ++other) {
        grad_weight += partial[0][other * across + threadIdx.x];
        grad_bias += partial[1][other * across + threadIdx.x];
      }
      const int64_t at = here.part * g.stride + here.channel + channel;
      g.grad_weight[at] = add ? g.grad_weight[at] + grad_weight : grad_weight;
      g.grad_bias[at] = add ? g.grad_bias[at] + grad_bias : grad_bias;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kNormThreads, 2) backward_kernel(Problem<T> p, Gradients<T> g) {
  FM_DYNAMIC_SHARED(unsigned char, memory);
  __shared__ Segment before[kMaxGroups];
  __shared__ TauNu carried[kMaxGroups];
  __shared__ float partial[2][kNormThreads];
  const Place here(p);
  const Rows rows(memory, kNormTile * p.block_groups, true);
  const int own = threadIdx.x;  // group of this thread, for the first few
  if (own < here.groups) {
    carried[own] = at_the_end(p, g, here.sequence, here.group + own);
    if (g.tiles) {
      const Adjoint after = g.tiles[(here.sequence * p.tiles + here.end_tile - 1) * p.groups + here.group + own];
      carried[own] = {after.a, after.b};
    }
  }
  for (int64_t tile = here.end_tile - 1; tile >= here.first_tile; --tile) {
    const int64_t start = tile * kNormTile;
    if (own < here.groups) before[own] = carried_in(p, here, tile, own);
    find_moments(p, here, start, rows);
    __syncthreads();
    scan_steps(p, here, start, rows, before);
    __syncthreads();
    find_sums(p, g, here, start, rows);
    __syncthreads();
    scan_back<T>(p, here, rows, carried, nullptr);
    __syncthreads();
    write_gradients(p, g, here, start, rows, partial, tile != here.end_tile - 1);  // no barrier after it, as above
  }
  if (g.grad_mean && here.first_tile == 0 && own < here.groups) {
    const int64_t at = here.sequence * p.groups + here.group + own;
    const double count = static_cast<double>(p.count[here.sequence]);
    const double total = p.before[(here.sequence * (p.tiles + 1) + p.tiles) * p.groups + here.group + own].count;
    // Without a step, the statistics go through unchanged.
    g.grad_mean[at] = total > 0.0 ? carried[own].nu * count : value_or_zero(g.grad_final_mean, at);
    g.grad_variance[at] = total > 0.0 ? carried[own].tau * count : value_or_zero(g.grad_final_variance, at);
  }
}

struct Layout {
  int block_groups, lanes;
  int64_t group_blocks, tiles, tiles_per_block, ranges;

  explicit Layout(const TimestepNormShape& s) {
    const int64_t wanted = kBlockFeatures / s.features();
    block_groups = static_cast<int>(std::max<int64_t>(1, std::min<int64_t>({s.groups, wanted, kMaxGroups})));
    lanes = 1;
    while (lanes < 32 && lanes < s.features()) lanes *= 2;
    group_blocks = (s.groups + block_groups - 1) / block_groups;
    tiles = (s.length + kNormTile - 1) / kNormTile;
    tiles_per_block = s.batch * group_blocks >= kEnoughBlocks ? tiles : 1;
    ranges = (tiles + tiles_per_block - 1) / tiles_per_block;
  }
  bool split() const { return ranges > 1; }
  int64_t segment_bytes(const TimestepNormShape& s) const {
    return s.batch * (tiles + 1) * s.groups * static_cast<int64_t>(sizeof(Segment));
  }
  int64_t adjoint_bytes(const TimestepNormShape& s) const {
    return s.batch * tiles * s.groups * static_cast<int64_t>(sizeof(Adjoint));
  }
};

template <class T>
Problem<T> problem(const TimestepNormShape& s, const TimestepNormInputs& in, const Layout& layout, void* workspace) {
  return {s.length,       s.width,       static_cast<int>(s.groups), static_cast<int>(s.features()),
          layout.block_groups, layout.lanes, layout.tiles,           layout.tiles_per_block,
          s.eps,          static_cast<const T*>(in.x), in.weight,    in.bias,
          in.count,       in.mean,       in.variance,                in.padding,
          static_cast<Segment*>(workspace)};
}

// Fills p.before.
template <class T>
void find_prefixes(const TimestepNormShape& s, Problem<T> p, const Layout& layout, void* stream) {
  const int64_t rows = s.batch * s.groups;
  p.tiles_per_block = 1;
  FM_LAUNCH(static_cast<unsigned>(s.batch * layout.tiles * layout.group_blocks), kNormThreads,
            norm_shared_bytes(layout.block_groups, false), stream, summary_kernel<T>)(p);
  FM_LAUNCH(static_cast<unsigned>((rows + kNormWarps - 1) / kNormWarps), kNormThreads, 0, stream,
            prefix_kernel<T>)(p, s.batch);
}

template <class T>
int forward(const TimestepNormShape& s, const TimestepNormInputs& in, const TimestepNormOutputs& out, void* workspace,
            void* stream) {
  const Layout layout(s);
  const Problem<T> p = problem<T>(s, in, layout, layout.split() ? workspace : nullptr);
  if (layout.split()) find_prefixes(s, p, layout, stream);
  FM_LAUNCH(static_cast<unsigned>(s.batch * layout.ranges * layout.group_blocks), kNormThreads,
            norm_shared_bytes(layout.block_groups, false), stream,
            forward_kernel<T>)(p, out);
  return FM_LAST_ERROR();
}

template <class T>
int backward(const TimestepNormShape& s, const TimestepNormInputs& in, const TimestepNormGradients& out,
             void* workspace, void* stream) {
  const Layout layout(s);
  const Problem<T> p = problem<T>(s, in, layout, workspace);
  void* adjoints = static_cast<unsigned char*>(workspace) + layout.segment_bytes(s);
  const Gradients<T> g{static_cast<const T*>(out.grad_y),
                       out.grad_final_mean,
                       out.grad_final_variance,
                       static_cast<T*>(out.grad_x),
                       out.grad_weight,
                       out.grad_bias,
                       out.stride,
                       out.grad_mean,
                       out.grad_variance,
                       layout.split() ? static_cast<Adjoint*>(adjoints) : nullptr};
  const unsigned blocks = static_cast<unsigned>(s.batch * layout.ranges * layout.group_blocks);
  const size_t shared = norm_shared_bytes(layout.block_groups, true);
  find_prefixes(s, p, layout, stream);
  if (layout.split()) {
    FM_LAUNCH(blocks, kNormThreads, shared, stream, backward_summary_kernel<T>)(p, g);
    FM_LAUNCH(static_cast<unsigned>((s.batch * s.groups + kNormWarps - 1) / kNormWarps), kNormThreads, 0, stream,
              suffix_kernel<T>)(p, g, s.batch);
  }
  FM_LAUNCH(blocks, kNormThreads, shared, stream, backward_kernel<T>)(p, g);
  return FM_LAST_ERROR();
}

}  // namespace

int64_t timestep_norm_workspace_cuda(const TimestepNormShape& shape, bool backward) {
  const Layout layout(shape);
  if (!backward) return layout.split() ? layout.segment_bytes(shape) : 0;
  return layout.segment_bytes(shape) + (layout.split() ? layout.adjoint_bytes(shape) : 0);
}

int64_t timestep_norm_parts_cuda(const TimestepNormShape& shape) { return shape.batch * Layout(shape).ranges; }

int timestep_norm_forward_cuda(const TimestepNormShape& shape, const TimestepNormInputs& in,
                               const TimestepNormOutputs& out, void* workspace, void* stream) {
  switch (shape.dtype) {
    case DType::kFloat32: return forward<float>(shape, in, out, workspace, stream);
    case DType::kBFloat16: return forward<__nv_bfloat16>(shape, in, out, workspace, stream);
    case DType::kFloat16: return forward<__half>(shape, in, out, workspace, stream);
  }
  return cudaErrorInvalidValue;
}

int timestep_norm_backward_cuda(const TimestepNormShape& shape, const TimestepNormInputs& in,
                                const TimestepNormGradients& out, void* workspace, void* stream) {
  switch (shape.dtype) {
    case DType::kFloat32: return backward<float>(shape, in, out, workspace, stream);
    case DType::kBFloat16: return backward<__nv_bfloat16>(shape, in, out, workspace, stream);
    case DType::kFloat16: return backward<__half>(shape, in, out, workspace, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace fm
