// Norms of rows on the GPU, whose threads hold a row in registers: a warp, or a whole block if it is wide; see norm.h.
#include "norm/norm.h"

#include "gate/element.cuh"

namespace fm {
namespace {

constexpr int kSteps = 4, kColumns = 4;  // a thread has some neighbouring columns, so many times
constexpr int kWarpColumns = kSteps * kColumns * kLanes;
static_assert(kMostNormColumns <= kRowWarps * kWarpColumns, "a block holds a row");

template <class T>
struct alignas(kColumns * sizeof(T)) Several {
  T values[kColumns];
};

// The columns of a thread of `kTeam` threads that share a row.
template <int kTeam>
struct Columns {
  int width;
  bool whole;  // whether no four of them are divided, or lie at an odd address

  __device__ __forceinline__ int at(int step) const { return (step * kTeam + threadIdx.x % kTeam) * kColumns; }

  template <class Body>
  __device__ __forceinline__ void steps(const Body& body) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (at(step) >= width) break;
      body(step);
    }
  }

  // Calls body(step, i) for them.
  template <class Body>
  __device__ __forceinline__ void each(const Body& body) const {
    steps([&](int step) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (at(step) + i < width) body(step, i);
      }
    });
  }

  // Reads those of a step; what lies beyond the row is left as it is.
  template <class T>
  __device__ __forceinline__ void read(const void* rows, int64_t begin, int step, float (&to)[kColumns]) const {
    const T* from = static_cast<const T*>(rows) + begin + at(step);
    if (whole) {
      const Several<T> several = *reinterpret_cast<const Several<T>*>(from);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) to[i] = static_cast<float>(several.values[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (at(step) + i < width) to[i] = static_cast<float>(from[i]);
      }
    }
  }

  template <class T>
  __device__ __forceinline__ void write(void* rows, int64_t begin, int step, const float (&from)[kColumns]) const {
    T* to = static_cast<T*>(rows) + begin + at(step);
    if (whole) {
      Several<T> several;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) several.values[i] = T(from[i]);
      *reinterpret_cast<Several<T>*>(to) = several;
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (at(step) + i < width) to[i] = T(from[i]);
      }
    }
  }

  // Writes a row, if it is wanted.
  template <class T>
  __device__ __forceinline__ void write_row(void* rows, int64_t begin, const float (&from)[kSteps][kColumns]) const {
    if (rows) steps([&](int step) { write<T>(rows, begin, step, from[step]); });
  }

  // Adds a row, if there is one.
  template <class T>
  __device__ __forceinline__ void add_row(const void* rows, int64_t begin, float (&to)[kSteps][kColumns]) const {
    if (!rows) return;
    steps([&](int step) {
      float more[kColumns] = {};
      read<T>(rows, begin, step, more);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) to[step][i] += more[i];
    });
  }
};

struct NoGate {};

// Reads the gate's inputs of a step.
template <class X, class T, int kTeam>
__device__ __forceinline__ void read_gate(const GateInputs& in, const Columns<kTeam>& columns, int64_t row, int step,
                                          Loaded (&to)[kColumns]) {
  float x[kColumns] = {}, update[kColumns] = {}, sum[kColumns] = {}, addend[kColumns] = {}, bias[kColumns] = {};
  columns.template read<X>(in.x, row * in.x_stride, step, x);
  columns.template read<T>(in.candidate, row * in.candidate_stride, step, sum);
  if (in.update) columns.template read<T>(in.update, row * in.update_stride, step, update);
  if (in.addend) columns.template read<T>(in.addend, row * in.addend_stride, step, addend);
  if (in.bias) columns.template read<float>(in.bias, 0, step, bias);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) to[i] = {x[i], update[i], sum[i] + bias[i] + addend[i]};
}

// Reads a row of x, or computes it from the gate's inputs.
template <class X, class T, int kTeam>
__device__ __forceinline__ void read_row(const NormInputs& in, const Columns<kTeam>& columns, int64_t row,
                                         float (&x)[kSteps][kColumns]) {
  if constexpr (std::is_same_v<T, NoGate>) {
    columns.steps([&](int step) { columns.template read<X>(in.x, row * in.stride, step, x[step]); });
  } else {
    const RowBits bits = in.gate.dropping.row(row);
    columns.steps([&](int step) {
      Loaded loaded[kColumns];
      read_gate<X, T>(in.gate, columns, row, step, loaded);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        x[step][i] = result(in.gate, loaded[i], element(in.gate, loaded[i], bits, columns.at(step) + i));
      }
    });
  }
}

// Writes the gradients of the gate's inputs from that of its result, h; adds that of the bias to sums, by column.
template <class X, class T, int kTeam>
__device__ __forceinline__ void gate_gradients(const NormInputs& in, const NormGradients& gradients,
                                               const Columns<kTeam>& columns, int64_t row,
                                               const float (&h)[kSteps][kColumns], float* sums) {
  const RowBits bits = in.gate.dropping.row(row);
  const int64_t begin = row * columns.width;
  columns.steps([&](int step) {
    Loaded loaded[kColumns];
    read_gate<X, T>(in.gate, columns, row, step, loaded);
    float x[kColumns], update[kColumns], candidate[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const Element e = element(in.gate, loaded[i], bits, columns.at(step) + i);
      const ElementGradients g = gradients_of(in.gate, loaded[i], e, h[step][i]);
      x[i] = g.x;
      update[i] = g.update;
      candidate[i] = g.candidate;
      sums[columns.at(step) + i] += g.candidate;
    }
    columns.template write<X>(gradients.x, begin, step, x);
    if (in.gate.update) columns.template write<T>(gradients.update, begin, step, update);
    columns.template write<T>(gradients.candidate, begin, step, candidate);
  });
}

// Sums of two numbers over the threads of a row.
template <int kTeam>
__device__ __forceinline__ float2 sum_of_team(float2 x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x.x += __shfl_xor_sync(0xffffffffu, x.x, distance);
    x.y += __shfl_xor_sync(0xffffffffu, x.y, distance);
  }
  if (kTeam == kLanes) return x;
  __shared__ float2 shared[kRowWarps];
  __syncthreads();
  if (threadIdx.x % kLanes == 0) shared[threadIdx.x / kLanes] = x;
  __syncthreads();
  x = {0.f, 0.f};
#pragma unroll
  for (int warp = 0; warp < kRowWarps; ++warp) {
    x.x += shared[warp].x;
    x.y += shared[warp].y;
  }
  return x;
}

// Replaces a row's numbers x by n; returns r. What is left of the mean after it is taken off, because a sum of large
// numbers loses digits, is taken off too.
template <int kTeam>
__device__ __forceinline__ float normalize(const NormShape& shape, const Columns<kTeam>& columns,
                                           float (&x)[kSteps][kColumns]) {
  const float share = 1.f / static_cast<float>(columns.width);
  if (shape.centred) {
    float sum = 0.f;
    columns.each([&](int step, int i) { sum += x[step][i]; });
    const float mean = share * sum_of_team<kTeam>({sum, 0.f}).x;
    columns.each([&](int step, int i) { x[step][i] -= mean; });
  }
  float2 sums = {0.f, 0.f};
  columns.each([&](int step, int i) {
    sums.x += x[step][i];
    sums.y += x[step][i] * x[step][i];
  });
  sums = sum_of_team<kTeam>(sums);
  const float rest = shape.centred ? share * sums.x : 0.f;
  const float scale = rsqrtf(share * sums.y - rest * rest + shape.eps);
  columns.each([&](int step, int i) { x[step][i] = (x[step][i] - rest) * scale; });
  return scale;
}

template <class X, class T, int kTeam>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    norm_forward_kernel(NormShape shape, NormInputs in, NormResults out, bool whole) {
  const int64_t row = int64_t{blockIdx.x} * (kRowThreads / kTeam) + threadIdx.x / kTeam, begin = row * shape.width;
  if (row >= shape.rows) return;
  const Columns<kTeam> columns{static_cast<int>(shape.width), whole};
  float n[kSteps][kColumns];
  read_row<X, T>(in, columns, row, n);
  columns.template write_row<X>(out.x, begin, n);
  normalize(shape, columns, n);
  columns.each([&](int step, int i) {
    const int column = columns.at(step) + i;
    if (in.weight) n[step][i] *= in.weight[column] + shape.origin;
    if (in.bias) n[step][i] += in.bias[column];
  });
  columns.template write_row<X>(out.y, begin, n);
  columns.template write_row<__nv_bfloat16>(out.narrow, begin, n);
}

// A block has a part of the rows.
template <class X, class T, int kTeam>
__global__ void __launch_bounds__(kRowThreads, 2)
    norm_backward_kernel(NormShape shape, NormInputs in, NormGradients gradients, bool whole) {
  const Columns<kTeam> columns{static_cast<int>(shape.width), whole};
  const float share = 1.f / static_cast<float>(shape.width);
  const int64_t part_rows = norm_part_rows(shape.rows), begin = blockIdx.x * part_rows;
  const int count = static_cast<int>(min(part_rows, shape.rows - begin));  // of rows; fewer registers hold it
  constexpr bool kGated = !std::is_same_v<T, NoGate>;
  constexpr int kSums = kGated ? 3 : 2;
  float sums[kSums][kSteps][kColumns] = {};  // of the thread's columns
  __shared__ float of_bias[kGated ? kRowWarps * kWarpColumns : 1];  // registers do not hold the third sum, too
  float* own_of_bias = of_bias + threadIdx.x / kTeam * kWarpColumns;
  if constexpr (kGated) columns.each([&](int step, int i) { own_of_bias[columns.at(step) + i] = 0.f; });
  for (int i = threadIdx.x / kTeam; i < count; i += kRowThreads / kTeam) {
    const int64_t row = begin + i, place = row * shape.width;
    float n[kSteps][kColumns], h[kSteps][kColumns] = {};
    columns.template add_row<X>(gradients.y, place, h);
    columns.template add_row<__nv_bfloat16>(gradients.narrow, place, h);
    read_row<X, T>(in, columns, row, n);
    const float scale = normalize(shape, columns, n);
    float2 of_row = {0.f, 0.f};
    columns.each([&](int step, int i) {
      sums[0][step][i] += h[step][i] * n[step][i];
      sums[1][step][i] += h[step][i];
      if (in.weight) h[step][i] *= in.weight[columns.at(step) + i] + shape.origin;
      of_row.x += h[step][i];
      of_row.y += h[step][i] * n[step][i];
    });
    of_row = sum_of_team<kTeam>(of_row);
    const float offset = shape.centred ? share * of_row.x : 0.f, slope = share * of_row.y;
    columns.each([&](int step, int i) { h[step][i] = scale * (h[step][i] - offset - n[step][i] * slope); });
    columns.template add_row<X>(gradients.of_x, place, h);
    if constexpr (kGated) {
      gate_gradients<X, T>(in, gradients, columns, row, h, own_of_bias);
    } else {
      columns.template write_row<X>(gradients.x, place, h);
    }
  }
  if constexpr (kGated) columns.each([&](int step, int i) { sums[2][step][i] = own_of_bias[columns.at(step) + i]; });
  const RowSums& out = gradients.coefficients;
  float* part = out.parts + int64_t{blockIdx.x} * kSums * shape.width;
#pragma unroll
  for (int sum = 0; sum < kSums; ++sum) {
    float* to = part + sum * shape.width;
    if constexpr (kTeam == kRowThreads) {
      columns.each([&](int step, int i) { to[columns.at(step) + i] = sums[sum][step][i]; });
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        add_warps<kRowWarps>(sums[sum][step], [&](int i, float total) {
          if (columns.at(step) + i < shape.width) to[columns.at(step) + i] = total;
        });
        __syncthreads();
      }
    }
  }
  if (!is_last_block(out.counters, gridDim.x)) return;
  const int64_t width = kSums * shape.width;
  for (int64_t first = 0; first < width; first += kRowWarps * kLanes) {
    const auto place = [&](int sum) { return first + sum * kLanes + threadIdx.x % kLanes; };
    add_parts<kRowWarps, kRowWarps>(
        gridDim.x, [&](int64_t p, int sum) { return place(sum) < width ? out.parts[p * width + place(sum)] : 0.f; },
        [&](int sum, float total) {
          if (place(sum) < width) out.total[place(sum)] = total;
        });
    __syncthreads();
  }
}

// Whether rows so far apart in memory are read and written by four columns at once.
bool is_whole(const void* data, int64_t stride, DType dtype) {
  const size_t bytes = dtype == DType::kFloat32 ? 4 : 2;
  return stride % kColumns == 0 && reinterpret_cast<uintptr_t>(data) % (kColumns * bytes) == 0;
}

bool are_whole(const NormShape& shape, const NormInputs& in, std::initializer_list<const void*> of_x,
               std::initializer_list<const void*> of_gate, const void* narrow) {
  const GateInputs& gate = in.gate;
  const auto one_of_gate = [&](const void* data, int64_t stride) { return is_whole(data, stride, shape.gate_dtype); };
  bool whole = shape.width % kColumns == 0 && is_whole(in.x, in.stride, shape.dtype) &&
               is_whole(gate.x, gate.x_stride, shape.dtype) && one_of_gate(gate.update, gate.update_stride) &&
               one_of_gate(gate.candidate, gate.candidate_stride) && one_of_gate(gate.addend, gate.addend_stride) &&
               is_whole(gate.bias, 0, DType::kFloat32) && is_whole(narrow, 0, DType::kBFloat16);
  for (const void* data : of_x) whole = whole && is_whole(data, 0, shape.dtype);
  for (const void* data : of_gate) whole = whole && one_of_gate(data, 0);
  return whole;
}

// Calls launch(type of x, type of the gate's other inputs, threads of a row as a type).
template <class Launch>
int with_kernel(const NormShape& shape, bool gated, const Launch& launch) {
  const auto by_width = [&](auto x, auto gate) {
    if (shape.width <= kWarpColumns) return launch(x, gate, std::integral_constant<int, kLanes>());
    return launch(x, gate, std::integral_constant<int, kRowThreads>());
  };
  if (gated) return with_gate_types(shape.dtype, shape.gate_dtype, by_width);
  return with_cuda_type(shape.dtype, [&](auto type) { return by_width(type, NoGate()); });
}

}  // namespace

int norm_forward_cuda(const NormShape& shape, const NormInputs& in, const NormResults& out, void* stream) {
  const bool whole = are_whole(shape, in, {out.x, out.y}, {}, out.narrow);
  return with_kernel(shape, in.gate.candidate, [&](auto x, auto gate, auto team) {
    constexpr int kTeam = decltype(team)::value, kRows = kRowThreads / kTeam;
    const auto blocks = static_cast<unsigned>((shape.rows + kRows - 1) / kRows);
    FM_LAUNCH(blocks, kRowThreads, 0, stream, (norm_forward_kernel<decltype(x), decltype(gate), kTeam>))
    (shape, in, out, whole);
    return FM_LAST_ERROR();
  });
}

int norm_backward_cuda(const NormShape& shape, const NormInputs& in, const NormGradients& gradients, void* stream) {
  const bool whole = are_whole(shape, in, {gradients.y, gradients.of_x, gradients.x},
                               {gradients.update, gradients.candidate}, gradients.narrow);
  const auto blocks = static_cast<unsigned>(norm_parts(shape.rows));
  return with_kernel(shape, in.gate.candidate, [&](auto x, auto gate, auto team) {
    constexpr int kTeam = decltype(team)::value;
    FM_LAUNCH(blocks, kRowThreads, 0, stream, (norm_backward_kernel<decltype(x), decltype(gate), kTeam>))
    (shape, in, gradients, whole);
    return FM_LAST_ERROR();
  });
}

}  // namespace fm
