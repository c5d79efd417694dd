// Operators of the timestep norm: shapes, types and memory; see timestep_norm.h for what they compute.
#include "timestep_norm/timestep_norm.h"

#include "common/bindings.h"

namespace fm {
namespace {

// Contiguous inputs of one call, kept alive for its duration.
struct NormCall {
  Tensor x, weight, bias, count, mean, variance;
  std::optional<Tensor> padding;
  TimestepNormShape shape;

  TimestepNormInputs inputs() const {
    return {x.const_data_ptr(),
            weight.const_data_ptr<float>(),
            bias.const_data_ptr<float>(),
            count.const_data_ptr<int64_t>(),
            mean.const_data_ptr<double>(),
            variance.const_data_ptr<double>(),
            data_or_null<bool>(padding)};
  }
};

void check_size(const Tensor& t, const std::vector<int64_t>& size, const char* op, const char* name) {
  bool fits = t.dim() == static_cast<int64_t>(size.size());
  for (int64_t i = 0; fits && i < t.dim(); ++i) fits = t.size(i) == size[i];
  STD_TORCH_CHECK(fits, op, ": ", name, size.size() == 1 ? " must be (D,)" : " must be (B, G)");
}

void check_parameter(const Tensor& t, const TimestepNormShape& shape, const char* op, const char* name) {
  STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float, op, ": ", name, " must be float32");
  check_size(t, {shape.width}, op, name);
}

// The statistics stay in double precision between calls: rounded after each, those of a long stream would drift.
void check_statistic(const Tensor& t, const TimestepNormShape& shape, const char* op, const char* name) {
  STD_TORCH_CHECK(t.scalar_type() == ScalarType::Double, op, ": ", name, " must be float64");
  check_size(t, {shape.batch, shape.groups}, op, name);
}

NormCall prepare(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& count, const Tensor& mean,
                 const Tensor& variance, const std::optional<Tensor>& padding, double eps, const char* op) {
  TimestepNormShape shape;
  check_devices(op, {{"x", x},
                     {"weight", weight},
                     {"bias", bias},
                     {"the state's count", count},
                     {"the state's mean", mean},
                     {"the state's variance", variance},
                     {"padding_mask", padding}});
  STD_TORCH_CHECK(x.dim() == 3, op, ": x must be (B, L, D)");
  shape.batch = x.size(0);
  shape.length = x.size(1);
  shape.width = x.size(2);
  shape.dtype = element_type(x, "timestep_norm: x");
  shape.eps = static_cast<float>(eps);
  STD_TORCH_CHECK(mean.dim() == 2 && mean.size(1) >= 1 && shape.width % mean.size(1) == 0, op,
                  ": mean must be (B, G) with G a divisor of D");
  shape.groups = mean.size(1);
  check_parameter(weight, shape, op, "weight");
  check_parameter(bias, shape, op, "bias");
  check_statistic(mean, shape, op, "mean");
  check_statistic(variance, shape, op, "variance");
  STD_TORCH_CHECK(count.scalar_type() == ScalarType::Long && count.dim() == 1 && count.size(0) == shape.batch, op,
                  ": count must be (B,) in int64");
  if (padding.has_value()) {
    STD_TORCH_CHECK(padding->scalar_type() == ScalarType::Bool && padding->dim() == 2 &&
                        padding->size(0) == shape.batch && padding->size(1) == shape.length,
                    op, ": padding_mask must be (B, L) in bool");
  }
  return {packed(x),    packed(weight),   packed(bias),    packed(count),
          packed(mean), packed(variance), packed(padding), shape};
}

Tensor floats(const Tensor& like, std::vector<int64_t> size) { return torch::stable::new_empty(like, size); }

struct NormCpu {
  static int64_t parts(const TimestepNormShape& shape) { return shape.batch; }
  static void forward(const NormCall& call, const TimestepNormOutputs& out) {
    torch::stable::parallel_for(0, timestep_norm_tasks_cpu(call.shape), 1, [&](int64_t begin, int64_t end) {
      timestep_norm_forward_cpu(call.shape, call.inputs(), out, begin, end);
    });
  }
  static void backward(const NormCall& call, const TimestepNormGradients& out) {
    torch::stable::parallel_for(0, timestep_norm_tasks_cpu(call.shape), 1, [&](int64_t begin, int64_t end) {
      timestep_norm_backward_cpu(call.shape, call.inputs(), out, begin, end);
    });
  }
};

#if defined(FM_WITH_CUDA)
struct NormCuda {
  static int64_t parts(const TimestepNormShape& shape) { return timestep_norm_parts_cuda(shape); }
  static Tensor workspace(const NormCall& call, bool backward) {
    return floats(call.weight, {timestep_norm_workspace_cuda(call.shape, backward) / 4 + 1});
  }
  static void forward(const NormCall& call, const TimestepNormOutputs& out) {
    DeviceOf guard(call.x);
    Tensor memory = workspace(call, false);
    const int error = timestep_norm_forward_cuda(call.shape, call.inputs(), out, memory.mutable_data_ptr(),
                                                 current_stream(call.x));
    check_cuda("timestep_norm", error);
  }
  static void backward(const NormCall& call, const TimestepNormGradients& out) {
    DeviceOf guard(call.x);
    Tensor memory = workspace(call, true);
    const int error = timestep_norm_backward_cuda(call.shape, call.inputs(), out, memory.mutable_data_ptr(),
                                                  current_stream(call.x));
    check_cuda("timestep_norm_backward", error);
  }
};
#endif

template <class Device>
std::tuple<Tensor, Tensor, Tensor> timestep_norm(Tensor x, Tensor weight, Tensor bias, Tensor count, Tensor mean,
                                                 Tensor variance, std::optional<Tensor> padding, double eps) {
  const char* op = "timestep_norm";
  const NormCall call = prepare(x, weight, bias, count, mean, variance, padding, eps, op);
  STD_TORCH_CHECK(x.numel() > 0, op, ": x must not be empty");
  Tensor y = torch::stable::empty_like(call.x);
  Tensor new_mean = torch::stable::empty_like(call.mean), new_variance = torch::stable::empty_like(call.mean);
  Device::forward(call, {y.mutable_data_ptr(), new_mean.mutable_data_ptr<double>(),
                         new_variance.mutable_data_ptr<double>()});
  return {y, new_mean, new_variance};
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> timestep_norm_backward(
    Tensor grad_y, Tensor grad_final_mean, Tensor grad_final_variance, Tensor x, Tensor weight, Tensor count,
    Tensor mean, Tensor variance, std::optional<Tensor> padding, double eps) {
  const char* op = "timestep_norm_backward";
  const NormCall call = prepare(x, weight, weight, count, mean, variance, padding, eps, op);
  const TimestepNormShape& shape = call.shape;
  STD_TORCH_CHECK(x.numel() > 0, op, ": x must not be empty");
  STD_TORCH_CHECK(grad_y.scalar_type() == x.scalar_type() && grad_y.dim() == 3 && grad_y.numel() == x.numel(), op,
                  ": the gradient must have the shape and type of x");
  check_devices(op, {{"x", x},
                     {"grad_y", grad_y},
                     {"the gradient of the final mean", grad_final_mean},
                     {"the gradient of the final variance", grad_final_variance}});
  check_statistic(grad_final_mean, shape, op, "the gradient of the final mean");
  check_statistic(grad_final_variance, shape, op, "the gradient of the final variance");
  const Tensor g = packed(grad_y), gm = packed(grad_final_mean), gv = packed(grad_final_variance);
  Tensor grad_x = torch::stable::empty_like(call.x);
  const int64_t parts = Device::parts(shape);
  Tensor grad_weight = floats(call.weight, {parts, shape.width}), grad_bias = floats(call.weight, {parts, shape.width});
  Tensor grad_mean = torch::stable::empty_like(call.mean), grad_variance = torch::stable::empty_like(call.mean);
  Device::backward(call, {g.const_data_ptr(), gm.const_data_ptr<double>(), gv.const_data_ptr<double>(),
                          grad_x.mutable_data_ptr(), grad_weight.mutable_data_ptr<float>(),
                          grad_bias.mutable_data_ptr<float>(), grad_mean.mutable_data_ptr<double>(),
                          grad_variance.mutable_data_ptr<double>()});
  const std::vector<int64_t> first{0};
  return {grad_x, torch::stable::sum(grad_weight, first), torch::stable::sum(grad_bias, first), grad_mean,
          grad_variance};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "timestep_norm(Tensor x, Tensor weight, Tensor bias, Tensor count, Tensor mean, Tensor variance, "
      "Tensor? padding_mask, float eps) -> (Tensor, Tensor, Tensor)");
  m.def(
      "timestep_norm_backward(Tensor grad_y, Tensor grad_mean, Tensor grad_variance, Tensor x, Tensor weight, "
      "Tensor count, Tensor mean, Tensor variance, Tensor? padding_mask, float eps) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("timestep_norm", TORCH_BOX(&fm::timestep_norm<fm::NormCpu>));
  m.impl("timestep_norm_backward", TORCH_BOX(&fm::timestep_norm_backward<fm::NormCpu>));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("timestep_norm", TORCH_BOX(&fm::timestep_norm<fm::NormCuda>));
  m.impl("timestep_norm_backward", TORCH_BOX(&fm::timestep_norm_backward<fm::NormCuda>));
}
#endif
