#pragma once
// What the bindings share. They use LibTorch's stable interface only: no ATen or c10 header, no Python.h.
//
// Every op is registered twice: FM_LIBRARY_CPU with the kernels for CPUs, FM_LIBRARY_CUDA with those for GPUs. The
// simulator (tests/simulator) compiles the same files with FM_CUDA_SIM and another FM_NAMESPACE; there the CUDA
// kernels run on the CPU and are registered for it.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

#include "common/common.h"
#include "common/random.h"

#ifndef FM_NAMESPACE
#define FM_NAMESPACE fairseq_mega
#endif
#define FM_LIBRARY(m) FM_LIBRARY_(FM_NAMESPACE, m)
#define FM_LIBRARY_(name, m) STABLE_TORCH_LIBRARY_FRAGMENT(name, m)
#define FM_LIBRARY_IMPL_(name, key, m) STABLE_TORCH_LIBRARY_IMPL(name, key, m)
#if defined(FM_CUDA_SIM)
#define FM_LIBRARY_CUDA(m) FM_LIBRARY_IMPL_(FM_NAMESPACE, CPU, m)
#else
#define FM_LIBRARY_CPU(m) FM_LIBRARY_IMPL_(FM_NAMESPACE, CPU, m)
#define FM_LIBRARY_CUDA(m) FM_LIBRARY_IMPL_(FM_NAMESPACE, CUDA, m)
#endif

namespace fm {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// The tensor itself where it is contiguous, a contiguous copy elsewhere.
inline Tensor packed(const Tensor& t) { return t.is_contiguous() ? t : torch::stable::contiguous(t); }

inline std::optional<Tensor> packed(const std::optional<Tensor>& t) {
  return t.has_value() ? std::optional<Tensor>(packed(*t)) : std::nullopt;
}

inline bool same_shape(const Tensor& a, const Tensor& b) {
  bool same = a.dim() == b.dim();
  for (int64_t axis = 0; axis < a.dim() && same; ++axis) same = a.size(axis) == b.size(axis);
  return same;
}

// A new contiguous tensor of the shape and type of another.
inline Tensor like(const Tensor& t) {
  std::vector<int64_t> size(t.dim());
  for (int64_t axis = 0; axis < t.dim(); ++axis) size[axis] = t.size(axis);
  return torch::stable::new_empty(t, size);
}

// A tensor whose rows (all axes but the last) are equally far apart, copied only where they are not.
struct RowView {
  Tensor tensor;
  int64_t stride;
};

inline RowView rows_of(const Tensor& t) {
  const int64_t last = t.dim() - 1;
  const int64_t stride = last > 0 ? t.stride(last - 1) : t.size(0);
  bool regular = t.stride(last) == 1 || t.size(last) == 1;
  int64_t expected = stride;
  for (int64_t axis = last - 1; axis >= 0 && regular; --axis) {
    regular = t.size(axis) == 1 || t.stride(axis) == expected;
    expected *= t.size(axis);
  }
  if (regular && (last == 0 || t.size(last - 1) != 1)) return {t, stride};
  return {packed(t), t.size(last)};
}

// Element type of a tensor that may be float32, bfloat16 or float16; `what` names it in the error.
inline DType element_type(const Tensor& t, const char* what) {
  switch (t.scalar_type()) {
    case ScalarType::Float: return DType::kFloat32;
    case ScalarType::BFloat16: return DType::kBFloat16;
    case ScalarType::Half: return DType::kFloat16;
    default: STD_TORCH_CHECK(false, what, " must be float32, bfloat16 or float16");
  }
  return DType::kFloat32;
}

// Data of a contiguous tensor, or null for one that is absent.
template <class T>
const T* data_or_null(const std::optional<Tensor>& t) {
  return t.has_value() ? static_cast<const T*>(t->const_data_ptr()) : nullptr;
}

// Elements dropped with probability p, by a seed that is one number; `op` names the operator in errors.
inline Dropping dropping_of(const Tensor& seed, double p, const char* op) {
  STD_TORCH_CHECK(seed.scalar_type() == ScalarType::Long && seed.numel() == 1, op, ": the seed must be one int64");
  STD_TORCH_CHECK(p >= 0. && p <= 1., op, ": p must be a probability, found ", p);
  return {static_cast<const int64_t*>(seed.const_data_ptr()), static_cast<uint32_t>(p * kHashes + 0.5),
          p < 1. ? static_cast<float>(1. / (1. - p)) : 0.f};
}

// A tensor and its name in errors; null where an optional one is absent.
struct Named {
  const char* name;
  const Tensor* tensor;
  Named(const char* name, const Tensor& t) : name(name), tensor(&t) {}
  Named(const char* name, const std::optional<Tensor>& t) : name(name), tensor(t.has_value() ? &*t : nullptr) {}
};

// Raises an error for a tensor on another device than the first: a kernel would follow its pointer.
void check_devices(const char* op, std::initializer_list<Named> tensors);

// Raises an error in CUDA's words for what a CUDA source's function has returned, unless that is 0.
void check_cuda(const char* op, int error, const char* hint = "");

// Stream to launch on for tensors on the device of `t` (a made-up one in the simulator).
void* current_stream(const Tensor& t);

// Selects the device of a tensor for the lifetime of the object; nothing in the simulator.
class __attribute__((visibility("hidden"))) DeviceOf {
 public:
#if defined(FM_CUDA_SIM)
  explicit DeviceOf(const Tensor&) {}
#else
  explicit DeviceOf(const Tensor& t) : guard_(t.get_device_index()) {}

 private:
  torch::stable::accelerator::DeviceGuard guard_;
#endif
};

}  // namespace fm
