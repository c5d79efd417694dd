// Timestep normalisation on CUDA; cuda.cuh describes how the work is laid out.
#include "timestep_norm/cuda.cuh"

#include "common/launch.h"

namespace fm {
namespace {

constexpr int kSums = 4;  // numbers of a lane at a time

// Statistics before the first step of a sequence.
__device__ __forceinline__ Segment carried_into(const Problem& p, int sequence, int group) {
  const int64_t at = int64_t{sequence} * p.groups + group, count = p.in.count ? p.in.count[sequence] : 0;
  if (count == 0) return {0.0, 0.0, 0.0};
  return {static_cast<double>(count), p.in.mean[at], p.in.variance[at]};
}

// Statistics before the tile, of which `own` are those of the tile alone; one group a lane of the first warp. `parts`
// (B, tiles, G) are those of all tiles.
__device__ Segment link_forward(const Problem& p, const Place& here, const Segment& own, Segment* parts) {
  const int lane = threadIdx.x, word = here.position / kLinked, index = here.position % kLinked;
  const bool exists = lane < here.groups;
  const int group = here.group + lane;
  Segment* const before = p.before(here.sequence, here.tile, group);
  Segment carried = exists ? carried_into(p, here.sequence, group) : own;
  if (p.tiles > 1) {
    Segment* const part = parts + (int64_t{here.sequence} * p.tiles + here.tile) * p.groups + group;
    if (exists) *part = own;
    here.chain.publish(word, index);
    here.chain.wait(word, (1u << index) - 1);
    double count = 0.0, origin = 0.0;
    double2 sums{0.0, 0.0};
#pragma unroll 4
    for (int other = index; other > 0; --other) {
      if (!exists) continue;
      const Segment segment = read_shared(part - int64_t{other} * p.groups);
      if (count == 0.0) origin = segment.mean;
      const double way = segment.mean - origin, weighed = segment.count * way;
      count += segment.count;
      sums.x += weighed;
      sums.y += segment.count * segment.variance + weighed * way;
    }
    if (word > 0) {
      here.chain.wait(word, 1u << kLinked);
      if (exists) carried = read_shared(before - int64_t{index} * p.groups);
    }
    carried = merged(carried, from_sums(count, origin, sums));
    if (index == kLinked - 1 && here.tile + 1 < p.tiles) {
      if (exists) before[p.groups] = merged(carried, own);
      here.chain.publish(word + 1, kLinked);
    }
    here.chain.leave();
  }
  if (exists) *before = carried;
  return carried;
}

template <int kV, class T>
__global__ void __launch_bounds__(kNormThreads, 3) forward_kernel(Problem p, TimestepNormOutputs out, Segment* parts) {
  FM_DYNAMIC_SHARED(float4, rows);
  __shared__ Statistics<kForwardGroups> shared;
  const Place here(p, false);
  float* const values = reinterpret_cast<float*>(rows + p.steps * p.block_groups);
  stage<kV, T>(p, here, p.in.x, values);
  __syncthreads();
  find_moments<kV, false>(p, here, values, nullptr, rows, nullptr);
  __syncthreads();
  const Piece piece(here);
  sum_steps(here, piece, rows, shared);
  __syncthreads();
  if (threadIdx.x < kLanes) {
    const int lane = threadIdx.x;
    Segment own{0.0, 0.0, 0.0};
    if (lane < here.groups) {
      double2 sums{0.0, 0.0};
      for (int other = 0; other < kPieces; ++other) {
        sums.x += shared.sums[other][lane].x;
        sums.y += shared.sums[other][lane].y;
      }
      own = from_sums(here.all_steps(), shared.origin[lane], sums);
    }
    const Segment before = link_forward(p, here, own, parts);
    if (lane < here.groups) {
      shared.before[lane] = before;
      if (here.tile == p.tiles - 1) {
        const Segment last = merged(before, own);
        const int64_t at = int64_t{here.sequence} * p.groups + here.group + lane;
        const bool some = last.count > 0.0;
        *p.before(here.sequence, p.tiles, here.group + lane) = last;
        out.mean[at] = some ? last.mean : p.in.mean ? p.in.mean[at] : 0.0;
        out.variance[at] = some ? last.variance : p.in.variance ? p.in.variance[at] : 1.0;
        if (here.group + lane == 0) out.count[here.sequence] = static_cast<int64_t>(last.count);
      }
    }
  }
  __syncthreads();
  scan_steps(here, piece, p.shape.eps, rows, shared, [](int, double, double, float, double) {});
  __syncthreads();
  for_columns<kV>(here, [&](bool exists, int column, int slice, int slices) {
    if (!exists) return;
    const int group = quotient(column, p.features), row_values = here.groups * p.stride;
    const float* const from = values + group * p.stride + (column - group * p.features);
    const int bytes = static_cast<int>(p.shape.width * sizeof(T)), narrow_bytes = static_cast<int>(p.shape.width * 2);
    T* const y = static_cast<T*>(out.y) + here.first + column;
    __nv_bfloat16* const narrow = static_cast<__nv_bfloat16*>(out.narrow) + here.first + column;
    float w[kV], b[kV];
    read<kV>(p.in.weight + here.channel + column, w);
    read<kV>(p.in.bias + here.channel + column, b);
#pragma unroll 4
    for (int t = slice; t < here.length; t += slices) {
      const float4 row = rows[t * here.groups + group];
      float v[kV];
      read<kV>(from + t * row_values, v);
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        v[j] = ((v[j] - row.x) * row.y + row.z) * (1.f + w[j]) + b[j];
        if (row.y == 0.f) v[j] = 0.f;  // padded
      }
      write<kV>(row_at(y, t, bytes), v);
      if (out.narrow) write<kV>(row_at(narrow, t, narrow_bytes), v);
    }
  });
}

__device__ __forceinline__ double value_or_zero(const double* data, int64_t at) { return data ? data[at] : 0.0; }

// (tau, nu) after the last step.
__device__ __forceinline__ TauNu at_the_end(const Problem& p, const TimestepNormGradients& g, int sequence, int group) {
  const double count = p.before(sequence, p.tiles, group)->count;
  if (count == 0.0) return {0.0, 0.0};
  const int64_t at = int64_t{sequence} * p.groups + group;
  return {value_or_zero(g.grad_final_variance, at) / count, value_or_zero(g.grad_final_mean, at) / count};
}

// (tau, nu) after the tile, of which `own` is what the tile does to them; one group a lane of the first warp. `parts`
// (B, tiles, G) are what all tiles do, and behind them are (tau, nu) after those of a word.
__device__ TauNu link_backward(const Problem& p, const TimestepNormGradients& g, const Place& here, const Adjoint& own,
                               Adjoint* parts) {
  const int lane = threadIdx.x, word = here.position / kLinked, index = here.position % kLinked;
  const bool exists = lane < here.groups;
  const int group = here.group + lane;
  TauNu after = exists ? at_the_end(p, g, here.sequence, group) : TauNu{0.0, 0.0};
  if (p.tiles == 1) return after;
  Adjoint* const part = parts + (int64_t{here.sequence} * p.tiles + here.tile) * p.groups + group;
  TauNu* const sum = reinterpret_cast<TauNu*>(parts + p.all_tiles * p.groups) +
                     (int64_t{here.sequence} * Chain::size(p.tiles) + word) * p.groups + group;
  if (exists) *part = own;
  here.chain.publish(word, index);
  here.chain.wait(word, (1u << index) - 1);
  Adjoint later{0.0, 0.0, 0.0};
#pragma unroll 4
  for (int other = index; other > 0; --other) {
    if (exists) later = after_then(later, read_shared(part + int64_t{other} * p.groups));
  }
  if (word > 0) {
    here.chain.wait(word, 1u << kLinked);
    if (exists) after = read_shared(sum);
  }
  after = applied(later, after);
  if (index == kLinked - 1 && here.tile > 0) {
    if (exists) sum[p.groups] = applied(own, after);
    here.chain.publish(word + 1, kLinked);
  }
  here.chain.leave();
  return after;
}

// Adds up so many parts of the gradients of weight and bias, for the block's features.
__device__ __forceinline__ void add_columns(const Place& here, int64_t width, const float* parts, int64_t count,
                                            float* total) {
  for (int first = 0; first < 2 * here.width; first += kSums * kLanes) {
    const auto number = [&](int sum) { return first + sum * kLanes + static_cast<int>(threadIdx.x % kLanes); };
    const auto place = [&](int sum) {
      const int bias = number(sum) >= here.width;
      return bias * width + here.channel + number(sum) - bias * here.width;
    };
    add_parts<kRowWarps, kSums>(
        count,
        [&](int64_t part, int sum) {
          return number(sum) < 2 * here.width ? parts[part * 2 * width + place(sum)] : 0.f;
        },
        [&](int sum, float of_all) {
          if (number(sum) < 2 * here.width) total[place(sum)] = of_all;
        });
    __syncthreads();
  }
}

// The last block of some neighbouring tiles adds up their parts, and the last of these blocks all.
__device__ void add_tiles(const Problem& p, const Place& here, const RowSums& columns) {
  const int64_t own = (int64_t{here.sequence} * p.tiles + here.tile) / kLanes, begin = own * kLanes;
  const int64_t some = min(p.all_tiles - begin, int64_t{kLanes}), all = (p.all_tiles + kLanes - 1) / kLanes;
  const int64_t width = p.shape.width;
  unsigned* const counters = columns.counters + here.group / p.block_groups;
  if (!is_last_block(counters + own * p.group_blocks, some)) return;
  float* const sums = columns.parts + p.all_tiles * 2 * width;
  add_columns(here, width, columns.parts + begin * 2 * width, some, sums + own * 2 * width);
  if (!is_last_block(counters + all * p.group_blocks, all)) return;
  add_columns(here, width, sums, all, columns.total);
}

template <int kV, class T>
__global__ void __launch_bounds__(kNormThreads, 2)
    backward_kernel(Problem p, TimestepNormGradients g, RowSums columns, Adjoint* parts) {
  FM_DYNAMIC_SHARED(float4, rows);
  __shared__ Statistics<kBackwardGroups> shared;
  __shared__ Adjoint adjoints[kPieces][kBackwardGroups];
  __shared__ TauNu afterwards[kBackwardGroups];
  const Place here(p, true);
  const int count = p.steps * p.block_groups, lane = threadIdx.x;
  float4* const sums = rows + count;  // (A_t, B_t), then a_t, b_t, M_t - M_{t-1}, then nu / K, 2 tau / (K r_t)
  float *const values = reinterpret_cast<float*>(sums + count), *const gradients = values + count * p.stride;
  stage<kV, T>(p, here, p.in.x, values);
  stage<kV, T>(p, here, g.grad_y, gradients);
  if (g.grad_narrow) stage<kV, __nv_bfloat16>(p, here, g.grad_narrow, gradients, true);  // the same threads
  if (lane < here.groups) shared.before[lane] = *p.before(here.sequence, here.tile, here.group + lane);
  __syncthreads();
  find_moments<kV, true>(p, here, values, gradients, rows, sums);
  __syncthreads();
  const Piece piece(here);
  sum_steps(here, piece, rows, shared);
  __syncthreads();
  Adjoint own{0.0, 0.0, 0.0};
  scan_steps(here, piece, p.shape.eps, rows, shared, [&](int at, double off, double moved, float r, double share) {
    const float4 row = sums[at];
    const float of_step = static_cast<float>(share), way = static_cast<float>(moved);
    const float a = -0.5f * r * r * r * (row.y - static_cast<float>(off) * row.x) * of_step, b = -r * row.x * of_step;
    sums[at] = make_float4(a, b, way, 0.f);
    own = after_then({a, b - 2.0 * a * way, way}, own);
  });
  if (piece.exists()) adjoints[piece.index][piece.group] = own;
  __syncthreads();
  if (lane < kLanes) {
    Adjoint all{0.0, 0.0, 0.0};
    if (lane < here.groups) {
      for (int other = kPieces - 1; other >= 0; --other) all = after_then(all, adjoints[other][lane]);
    }
    const TauNu after = link_backward(p, g, here, all, parts);
    if (lane < here.groups) {
      afterwards[lane] = after;
      if (here.tile == 0 && g.grad_mean) {
        const int64_t at = int64_t{here.sequence} * p.groups + here.group + lane;
        const double total = p.before(here.sequence, p.tiles, 0)->count;
        const double carried = static_cast<double>(p.in.count[here.sequence]);
        const TauNu start = applied(all, after);
        // Without a step, the statistics go through unchanged.
        g.grad_mean[at] = total > 0.0 ? start.nu * carried : value_or_zero(g.grad_final_mean, at);
        g.grad_variance[at] = total > 0.0 ? start.tau * carried : value_or_zero(g.grad_final_variance, at);
      }
    }
  }
  __syncthreads();
  if (piece.exists()) {
    TauNu state = afterwards[piece.group];
    for (int other = kPieces - 1; other > piece.index; --other) {
      state = applied(adjoints[other][piece.group], state);
    }
    const double part = 1.0 / p.features;
    for (int t = piece.end - 1; t >= piece.begin; --t) {
      const int at = t * here.groups + piece.group;
      const float4 step = sums[at];
      if (rows[at].y == 0.f) continue;  // padded: zeros remain
      state.tau += step.x;
      state.nu += step.y;
      // The step's own x sees nu before it moves on to M_{t-1}.
      sums[at].x = static_cast<float>(state.nu * part);
      sums[at].y = static_cast<float>(2.0 * state.tau * part) * rows[at].w;
      state.nu -= 2.0 * state.tau * step.z;
    }
  }
  __syncthreads();
  for_columns<kV>(here, [&](bool exists, int column, int slice, int slices) {
    float grad_weight[kV] = {}, grad_bias[kV] = {};
    if (exists) {
      const int group = quotient(column, p.features), offset = group * p.stride + (column - group * p.features);
      const int bytes = static_cast<int>(p.shape.width * sizeof(T)), row_values = here.groups * p.stride;
      T* const grad_x = static_cast<T*>(g.grad_x) + here.first + column;
      float w[kV];
      read<kV>(p.in.weight + here.channel + column, w);
#pragma unroll 4
      for (int t = slice; t < here.length; t += slices) {
        const int at = t * here.groups + group, from = t * row_values + offset;
        const float4 row = rows[at];
        float v[kV], h[kV];
        read<kV>(values + from, v);
        read<kV>(gradients + from, h);
        const float nu = sums[at].x, tau = sums[at].y;  // padded: zero, as n and h are
#pragma unroll
        for (int j = 0; j < kV; ++j) {
          const float n = (v[j] - row.x) * row.y + row.z;
          grad_weight[j] += h[j] * n;
          grad_bias[j] += h[j];
          v[j] = h[j] * (1.f + w[j]) * row.y + (nu + tau * n);
        }
        write<kV>(row_at(grad_x, t, bytes), v);
      }
    }
    float* const partial = reinterpret_cast<float*>(rows);
    if (slices > 1) {  // then there are no further columns, which would need the rows
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        partial[threadIdx.x * kV + j] = grad_weight[j];
        partial[(kNormThreads + threadIdx.x) * kV + j] = grad_bias[j];
      }
      __syncthreads();
    }
    if (!exists || slice > 0) return;
    const int across = min(here.width, kNormThreads * kV);
    float* const to = columns.parts + (int64_t{here.sequence} * p.tiles + here.tile) * 2 * p.shape.width + here.channel;
#pragma unroll
    for (int j = 0; j < kV; ++j) {
      for (int other = 1; other < slices; ++other) {
        grad_weight[j] += partial[other * across + threadIdx.x * kV + j];
        grad_bias[j] += partial[kNormThreads * kV + other * across + threadIdx.x * kV + j];
      }
      to[column + j] = grad_weight[j];
      to[p.shape.width + column + j] = grad_bias[j];
    }
  });
  add_tiles(p, here, columns);
}

// Calls launch(a value of x's type, features of a thread as a type): four of a group at once where no tensor lies at an
// odd address.
template <class Launch>
int with_kernel(const Problem& p, std::initializer_list<const void*> tensors, const Launch& launch) {
  bool whole = p.features % kColumns == 0;
  for (const void* data : tensors) whole = whole && reinterpret_cast<uintptr_t>(data) % (4 * kColumns) == 0;
  return with_cuda_type(p.shape.dtype, [&](auto type) {
    if (whole) return launch(type, std::integral_constant<int, kColumns>());
    return launch(type, std::integral_constant<int, 1>());
  });
}

template <class Kernel, class... Arguments>
int launch(const Problem& p, void* stream, Kernel* kernel, const Arguments&... arguments) {
  const int error = FM_MORE_SHARED(p.shared_bytes(), kernel);
  if (error) return error;
  FM_LAUNCH(static_cast<unsigned>(p.all_tiles * p.group_blocks), kNormThreads, p.shared_bytes(), stream, kernel)
  (p, arguments...);
  return FM_LAST_ERROR();
}

}  // namespace

int64_t timestep_norm_tiles_cuda(const TimestepNormShape& shape) { return Problem(shape, false).tiles; }

int64_t timestep_norm_workspace_cuda(const TimestepNormShape& shape, bool backward) {
  const Problem p(shape, backward);
  const int64_t of_words = backward ? Chain::size(p.tiles) * sizeof(TauNu) : 0;
  static_assert(sizeof(Segment) == sizeof(Adjoint));
  return p.tiles > 1 ? shape.batch * shape.groups * (p.tiles * static_cast<int64_t>(sizeof(Segment)) + of_words) : 0;
}

int64_t timestep_norm_parts_cuda(const TimestepNormShape& shape) {
  const Problem p(shape, true);
  return p.all_tiles + p.sum_groups();
}

int64_t timestep_norm_counters_cuda(const TimestepNormShape& shape, bool backward) {
  const Problem p(shape, backward);
  return p.chain_words() + (backward ? (p.sum_groups() + 1) * p.group_blocks : 0);
}

int timestep_norm_forward_cuda(const TimestepNormShape& shape, const TimestepNormInputs& in,
                               const TimestepNormOutputs& out, void* workspace, unsigned* counters, void* stream) {
  Problem p(shape, false, in);
  p.words = counters;
  return with_kernel(p, {in.x, in.weight, in.bias, out.y, out.narrow}, [&](auto type, auto columns) {
    return launch(p, stream, forward_kernel<decltype(columns)::value, decltype(type)>, out,
                  static_cast<Segment*>(workspace));
  });
}

int timestep_norm_backward_cuda(const TimestepNormShape& shape, const TimestepNormInputs& in,
                                const TimestepNormGradients& out, const RowSums& columns, void* workspace,
                                void* stream) {
  Problem p(shape, true, in);
  p.words = columns.counters;
  const RowSums sums{columns.parts, columns.total, columns.counters + p.chain_words()};
  return with_kernel(p, {in.x, in.weight, out.grad_y, out.grad_narrow, out.grad_x}, [&](auto type, auto width) {
    return launch(p, stream, backward_kernel<decltype(width)::value, decltype(type)>, out, sums,
                  static_cast<Adjoint*>(workspace));
  });
}

}  // namespace fm
