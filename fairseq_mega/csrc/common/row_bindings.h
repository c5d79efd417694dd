#pragma once
// What the bindings of operators on rows share: shapes, checks, threads, and sums over the parts.
#include "common/bindings.h"
#include "common/device.h"
#include "common/rows.h"

namespace fm {

// The rows of a tensor: all axes but the last.
inline RowParts row_parts(const Tensor& x, const char* op) {
  RowParts parts;
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x must have at least one axis");
  parts.dtype = element_type(x, "x");
  parts.width = x.size(x.dim() - 1);
  parts.rows = parts.width > 0 ? x.numel() / parts.width : 0;
  return parts;
}

inline RowsIn rows_in(const RowView& view) { return {view.tensor.const_data_ptr(), view.stride}; }

inline RowsIn rows_in(const std::optional<RowView>& view) { return view ? rows_in(*view) : RowsIn(); }

inline void check_like(const Tensor& t, const Tensor& x, const char* op, const char* name) {
  STD_TORCH_CHECK(same_shape(t, x) && t.scalar_type() == x.scalar_type(), op, ": ", name,
                  " must have the shape and type of x");
}

// Coefficients of the columns, `count` for each.
inline Tensor columns(const Tensor& t, const RowParts& shape, int64_t count, const char* op, const char* name) {
  STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float && t.numel() == count * shape.width, op, ": ", name,
                  " must be float32, ", count, " for each column of x");
  return packed(t);
}

// Runs a kernel for all parts of the rows.
template <class Kernel>
void for_parts(const RowParts& shape, const Kernel& kernel) {
  if (shape.width == 0) return;
  torch::stable::parallel_for(0, shape.parts(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) kernel(part);
  });
}

// Sums over the parts.
inline Tensor total(const Tensor& parts, int64_t count, std::vector<int64_t> size) {
  Tensor sums = torch::stable::new_empty(parts, size);
  const float* from = parts.const_data_ptr<float>();
  float* to = sums.mutable_data_ptr<float>();
  const int64_t width = sums.numel();
  std::fill(to, to + width, 0.f);
  for (int64_t part = 0; part < count; ++part) {
    for (int64_t i = 0; i < width; ++i) to[i] += from[part * width + i];
  }
  return sums;
}

#if defined(FM_WITH_CUDA)
// Counters that are zero before a kernel and after it; `near` is on its device.
struct CudaCounters {
  std::optional<Tensor> own;  // of this kernel alone
  unsigned* memory;

  CudaCounters(const Tensor& near, int64_t count) : memory(cuda_counters(current_stream(near), count)) {
    if (memory || count == 0) return;
    own = torch::stable::new_empty(near, {count}, ScalarType::Int);
    torch::stable::zero_(*own);
    memory = static_cast<unsigned*>(own->mutable_data_ptr());
  }
};

// Sums over rows on the GPU, and their memory.
struct CudaSums {
  Tensor parts, total;
  CudaCounters counters;
  RowSums memory;

  // parts: what has the sums of the parts; size: of the total; tiles: how many counters the kernel uses.
  CudaSums(const Tensor& of_parts, std::vector<int64_t> size, int64_t tiles)
      : parts(of_parts), total(torch::stable::new_empty(parts, size)), counters(parts, tiles) {
    memory = {parts.mutable_data_ptr<float>(), total.mutable_data_ptr<float>(), counters.memory};
  }

  // The total, by launch(stream); zero without rows.
  template <class Launch>
  Tensor by(const char* op, const RowParts& shape, const Launch& launch) const {
    Tensor sums = total;
    if (shape.rows == 0) return torch::stable::zero_(sums);
    check_cuda(op, launch(current_stream(sums)));
    return sums;
  }
};
#endif

}  // namespace fm
