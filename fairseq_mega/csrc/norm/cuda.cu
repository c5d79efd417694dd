// Norms of rows on the GPU, whose threads hold a row in registers: a warp, or a whole block if it is wide; see norm.h.
#include "norm/norm.h"

#include "common/cuda_rows.cuh"

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

  // Calls body(step, i) for them.
  template <class Body>
  __device__ __forceinline__ void each(const Body& body) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (at(step) >= width) break;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (at(step) + i < width) body(step, i);
      }
    }
  }

  template <class T>
  __device__ __forceinline__ void read(const void* row, float (&to)[kSteps][kColumns]) const {
    const T* from = static_cast<const T*>(row);
    if (whole) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (at(step) >= width) break;
        const Several<T> several = *reinterpret_cast<const Several<T>*>(from + at(step));
#pragma unroll
        for (int i = 0; i < kColumns; ++i) to[step][i] = static_cast<float>(several.values[i]);
      }
    } else {
      each([&](int step, int i) { to[step][i] = static_cast<float>(from[at(step) + i]); });
    }
  }

  template <class T>
  __device__ __forceinline__ void write(void* row, const float (&from)[kSteps][kColumns]) const {
    T* to = static_cast<T*>(row);
    if (whole) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (at(step) >= width) break;
        Several<T> several;
#pragma unroll
        for (int i = 0; i < kColumns; ++i) several.values[i] = T(from[step][i]);
        *reinterpret_cast<Several<T>*>(to + at(step)) = several;
      }
    } else {
      each([&](int step, int i) { to[at(step) + i] = T(from[step][i]); });
    }
  }
};

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

// Replaces a row's numbers x by n; returns r. The mean is measured from the first number, so that a large one costs no
// digits.
template <class X, int kTeam>
__device__ __forceinline__ float normalize(const NormShape& shape, const Columns<kTeam>& columns, const void* row,
                                           float (&x)[kSteps][kColumns]) {
  const float share = 1.f / static_cast<float>(columns.width);
  columns.template read<X>(row, x);
  if (shape.centred) {
    const float origin = get<X>(row, 0);
    float sum = 0.f;
    columns.each([&](int step, int i) { sum += x[step][i] -= origin; });
    const float mean = share * sum_of_team<kTeam>({sum, 0.f}).x;
    columns.each([&](int step, int i) { x[step][i] -= mean; });
  }
  float squares = 0.f;
  columns.each([&](int step, int i) { squares += x[step][i] * x[step][i]; });
  const float scale = rsqrtf(share * sum_of_team<kTeam>({squares, 0.f}).x + shape.eps);
  columns.each([&](int step, int i) { x[step][i] *= scale; });
  return scale;
}

template <class X, class Y, int kTeam>
__global__ void __launch_bounds__(kRowThreads)
    norm_forward_kernel(NormShape shape, NormInputs in, void* y, bool whole) {
  const int64_t row = int64_t{blockIdx.x} * (kRowThreads / kTeam) + threadIdx.x / kTeam;
  if (row >= shape.rows) return;
  const Columns<kTeam> columns{static_cast<int>(shape.width), whole};
  float n[kSteps][kColumns];
  normalize<X>(shape, columns, static_cast<const X*>(in.x) + row * in.stride, n);
  columns.each([&](int step, int i) {
    const int column = columns.at(step) + i;
    if (in.weight) n[step][i] *= in.weight[column] + shape.origin;
    if (in.bias) n[step][i] += in.bias[column];
  });
  columns.template write<Y>(static_cast<Y*>(y) + row * shape.width, n);
}

// A block has a part of the rows.
template <class X, class Y, int kTeam>
__global__ void __launch_bounds__(kRowThreads, 2)
    norm_backward_kernel(NormShape shape, NormInputs in, NormGradients gradients, bool whole) {
  const Columns<kTeam> columns{static_cast<int>(shape.width), whole};
  const float share = 1.f / static_cast<float>(shape.width);
  const int64_t part_rows = norm_part_rows(shape.rows), begin = blockIdx.x * part_rows;
  const int64_t end = min(begin + part_rows, shape.rows);
  float sums[2][kSteps][kColumns] = {};  // of the thread's columns
  for (int64_t row = begin + threadIdx.x / kTeam; row < end; row += kRowThreads / kTeam) {
    float n[kSteps][kColumns], h[kSteps][kColumns];
    columns.template read<Y>(static_cast<const Y*>(gradients.y) + row * shape.width, h);
    const float scale = normalize<X>(shape, columns, static_cast<const X*>(in.x) + row * in.stride, n);
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
    columns.template write<X>(static_cast<X*>(gradients.x) + row * shape.width, h);
  }
  const RowSums& out = gradients.coefficients;
  float* part = out.parts + int64_t{blockIdx.x} * 2 * shape.width;
#pragma unroll
  for (int sum = 0; sum < 2; ++sum) {
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
  const int64_t width = 2 * shape.width;
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

// Calls launch(type of x, type of y, threads of a row as a type).
template <class Launch>
int with_kernel(const NormShape& shape, const Launch& launch) {
  const auto by_width = [&](auto x, auto y) {
    if (shape.width <= kWarpColumns) return launch(x, y, std::integral_constant<int, kLanes>());
    return launch(x, y, std::integral_constant<int, kRowThreads>());
  };
  if (shape.result_dtype != shape.dtype) return by_width(0.f, __nv_bfloat16());
  return with_cuda_type(shape.dtype, [&](auto type) { return by_width(type, type); });
}

}  // namespace

int norm_forward_cuda(const NormShape& shape, const NormInputs& in, void* y, void* stream) {
  const bool whole = shape.width % kColumns == 0 && is_whole(in.x, in.stride, shape.dtype) &&
                     is_whole(y, shape.width, shape.result_dtype);
  return with_kernel(shape, [&](auto x, auto result, auto team) {
    constexpr int kRows = kRowThreads / decltype(team)::value;
    const auto blocks = static_cast<unsigned>((shape.rows + kRows - 1) / kRows);
    FM_LAUNCH(blocks, kRowThreads, 0, stream, (norm_forward_kernel<decltype(x), decltype(result), decltype(team)::value>))
    (shape, in, y, whole);
    return FM_LAST_ERROR();
  });
}

int norm_backward_cuda(const NormShape& shape, const NormInputs& in, const NormGradients& gradients, void* stream) {
  const bool whole = shape.width % kColumns == 0 && is_whole(in.x, in.stride, shape.dtype) &&
                     is_whole(gradients.x, shape.width, shape.dtype) &&
                     is_whole(gradients.y, shape.width, shape.result_dtype);
  const auto blocks = static_cast<unsigned>(norm_parts(shape.rows));
  return with_kernel(shape, [&](auto x, auto y, auto team) {
    FM_LAUNCH(blocks, kRowThreads, 0, stream, (norm_backward_kernel<decltype(x), decltype(y), decltype(team)::value>))
    (shape, in, gradients, whole);
    return FM_LAST_ERROR();
  });
}

}  // namespace fm
