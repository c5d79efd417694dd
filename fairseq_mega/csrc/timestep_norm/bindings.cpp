// Operators of the timestep norm: shapes, types and memory; see timestep_norm.h for what they compute.
#include "timestep_norm/timestep_norm.h"

#include "common/row_bindings.h"

namespace fm {
namespace {

// Contiguous inputs of one call, kept alive for its duration.
struct NormCall {
  Tensor x, weight, bias;
  std::optional<Tensor> count, mean, variance, padding;
  TimestepNormShape shape;
  Tensor tiles;

  TimestepNormInputs inputs() const {
    return {x.const_data_ptr(),
            weight.const_data_ptr<float>(),
            bias.const_data_ptr<float>(),
            data_or_null<int64_t>(count),
            data_or_null<double>(mean),
            data_or_null<double>(variance),
            data_or_null<bool>(padding),
            static_cast<double*>(tiles.mutable_data_ptr())};
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
void check_statistic(const std::optional<Tensor>& t, const TimestepNormShape& shape, const char* op,
                     const char* name) {
  if (!t) return;
  STD_TORCH_CHECK(t->scalar_type() == ScalarType::Double, op, ": ", name, " must be float64");
  check_size(*t, {shape.batch, shape.groups}, op, name);
}

NormCall prepare(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                 const std::optional<Tensor>& count, const std::optional<Tensor>& mean,
                 const std::optional<Tensor>& variance, const std::optional<Tensor>& padding, double eps,
                 const char* op) {
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
  STD_TORCH_CHECK(groups >= 1 && shape.width % groups == 0, op, ": the number of groups must be a divisor of D");
  shape.groups = groups;
  check_parameter(weight, shape, op, "weight");
  check_parameter(bias, shape, op, "bias");
  check_statistic(mean, shape, op, "mean");
  check_statistic(variance, shape, op, "variance");
  STD_TORCH_CHECK(count.has_value() == mean.has_value() && count.has_value() == variance.has_value(), op,
                  ": count, mean and variance belong together");
  if (count) {
    STD_TORCH_CHECK(count->scalar_type() == ScalarType::Long && count->dim() == 1 && count->size(0) == shape.batch, op,
                    ": count must be (B,) in int64");
  }
  if (padding.has_value()) {
    STD_TORCH_CHECK(padding->scalar_type() == ScalarType::Bool && padding->dim() == 2 &&
                        padding->size(0) == shape.batch && padding->size(1) == shape.length,
                    op, ": padding_mask must be (B, L) in bool");
  }
  return {packed(x),    packed(weight),   packed(bias),    packed(count),
          packed(mean), packed(variance), packed(padding), shape, weight};
}

Tensor floats(const Tensor& like, std::vector<int64_t> size) { return torch::stable::new_empty(like, size); }

Tensor statistics(const NormCall& call) {
  return torch::stable::new_empty(call.weight, {call.shape.batch, call.shape.groups}, ScalarType::Double);
}

struct NormCpu {
  static int64_t tiles(const NormCall&) { return 0; }
  static void forward(const NormCall& call, const TimestepNormOutputs& out) {
    STD_TORCH_CHECK(!out.narrow, "timestep_norm: a CPU has no second result in bfloat16");
    torch::stable::parallel_for(0, timestep_norm_tasks_cpu(call.shape), 1, [&](int64_t begin, int64_t end) {
      timestep_norm_forward_cpu(call.shape, call.inputs(), out, begin, end);
    });
  }
  // Returns the gradients of weight and bias, (2, D).
  static Tensor backward(const NormCall& call, TimestepNormGradients out) {
    const TimestepNormShape& shape = call.shape;
    Tensor sums = floats(call.weight, {shape.batch, 2, shape.width});
    out.place(sums.mutable_data_ptr<float>(), shape.width);
    torch::stable::parallel_for(0, timestep_norm_tasks_cpu(shape), 1, [&](int64_t begin, int64_t end) {
      timestep_norm_backward_cpu(shape, call.inputs(), out, begin, end);
    });
    return torch::stable::sum(sums, std::vector<int64_t>{0});
  }
};

#if defined(FM_WITH_CUDA)
struct NormCuda {
  static Tensor workspace(const NormCall& call, bool backward) {
    return floats(call.weight, {timestep_norm_workspace_cuda(call.shape, backward) / 4 + 1});
  }
  static int64_t tiles(const NormCall& call) { return timestep_norm_tiles_cuda(call.shape) + 1; }
  static void forward(const NormCall& call, const TimestepNormOutputs& out) {
    DeviceOf guard(call.x);
    Tensor memory = workspace(call, false);
    const CudaCounters counters(call.x, timestep_norm_counters_cuda(call.shape, false));
    const int error = timestep_norm_forward_cuda(call.shape, call.inputs(), out, memory.mutable_data_ptr(),
                                                 counters.memory, current_stream(call.x));
    check_cuda("timestep_norm", error);
  }
  static Tensor backward(const NormCall& call, const TimestepNormGradients& out) {
    DeviceOf guard(call.x);
    Tensor memory = workspace(call, true);
    const Tensor parts = floats(call.weight, {timestep_norm_parts_cuda(call.shape), 2, call.shape.width});
    const CudaSums sums(parts, {2, call.shape.width}, timestep_norm_counters_cuda(call.shape, true));
    const int error = timestep_norm_backward_cuda(call.shape, call.inputs(), out, sums.memory,
                                                  memory.mutable_data_ptr(), current_stream(call.x));
    check_cuda("timestep_norm_backward", error);
    return sums.total;
  }
};
#endif

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> timestep_norm(
    Tensor x, Tensor weight, Tensor bias, int64_t groups, std::optional<Tensor> count, std::optional<Tensor> mean,
    std::optional<Tensor> variance, std::optional<Tensor> padding, double eps, bool narrow) {
  const char* op = "timestep_norm";
  NormCall call = prepare(x, weight, bias, groups, count, mean, variance, padding, eps, op);
  STD_TORCH_CHECK(x.numel() > 0, op, ": x must not be empty");
  Tensor y = torch::stable::empty_like(call.x);
  Tensor new_count = torch::stable::new_empty(call.weight, {call.shape.batch}, ScalarType::Long);
  Tensor new_mean = statistics(call), new_variance = statistics(call);
  const TimestepNormShape& s = call.shape;
  const std::vector<int64_t> size = narrow ? std::vector<int64_t>{s.batch, s.length, s.width} : std::vector<int64_t>{0};
  Tensor second = torch::stable::new_empty(call.x, size, ScalarType::BFloat16);
  call.tiles = torch::stable::new_empty(call.x, {s.batch, Device::tiles(call), s.groups, 3}, ScalarType::Double);
  Device::forward(call, {y.mutable_data_ptr(), narrow ? second.mutable_data_ptr() : nullptr,
                         new_count.mutable_data_ptr<int64_t>(), new_mean.mutable_data_ptr<double>(),
                         new_variance.mutable_data_ptr<double>()});
  return {y, second, new_count, new_mean, new_variance, call.tiles};
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor> timestep_norm_backward(
    Tensor grad_y, std::optional<Tensor> grad_narrow, std::optional<Tensor> grad_final_mean,
    std::optional<Tensor> grad_final_variance, Tensor x, Tensor weight, int64_t groups, std::optional<Tensor> count,
    std::optional<Tensor> mean, std::optional<Tensor> variance, std::optional<Tensor> padding, Tensor tiles, double eps) {
  const char* op = "timestep_norm_backward";
  NormCall call = prepare(x, weight, weight, groups, count, mean, variance, padding, eps, op);
  const TimestepNormShape& shape = call.shape;
  call.tiles = packed(tiles);
  STD_TORCH_CHECK(tiles.scalar_type() == ScalarType::Double &&
                      tiles.numel() == shape.batch * Device::tiles(call) * shape.groups * 3,
                  op, ": tiles must be those of the forward pass");
  STD_TORCH_CHECK(x.numel() > 0, op, ": x must not be empty");
  STD_TORCH_CHECK(grad_y.scalar_type() == x.scalar_type() && grad_y.dim() == 3 && grad_y.numel() == x.numel(), op,
                  ": the gradient must have the shape and type of x");
  STD_TORCH_CHECK(!grad_narrow || (grad_narrow->scalar_type() == ScalarType::BFloat16 && same_shape(*grad_narrow, x)),
                  op, ": the gradient of the narrow result must be bfloat16, of the shape of x");
  check_devices(op, {{"x", x},
                     {"grad_y", grad_y},
                     {"the gradient of the narrow result", grad_narrow},
                     {"tiles", tiles},
                     {"the gradient of the final mean", grad_final_mean},
                     {"the gradient of the final variance", grad_final_variance}});
  check_statistic(grad_final_mean, shape, op, "the gradient of the final mean");
  check_statistic(grad_final_variance, shape, op, "the gradient of the final variance");
  const Tensor g = packed(grad_y);
  const std::optional<Tensor> gn = packed(grad_narrow), gm = packed(grad_final_mean), gv = packed(grad_final_variance);
  Tensor grad_x = torch::stable::empty_like(call.x);
  const auto absent = [&] { return torch::stable::new_empty(call.weight, {0}, ScalarType::Double); };
  Tensor grad_mean = count ? statistics(call) : absent(), grad_variance = count ? statistics(call) : absent();
  TimestepNormGradients gradients{};
  gradients.grad_y = g.const_data_ptr();
  gradients.grad_narrow = gn ? gn->const_data_ptr() : nullptr;
  gradients.grad_final_mean = data_or_null<double>(gm);
  gradients.grad_final_variance = data_or_null<double>(gv);
  gradients.grad_x = grad_x.mutable_data_ptr();
  if (count) {
    gradients.grad_mean = grad_mean.mutable_data_ptr<double>();
    gradients.grad_variance = grad_variance.mutable_data_ptr<double>();
  }
  return {grad_x, Device::backward(call, gradients), grad_mean, grad_variance};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "timestep_norm(Tensor x, Tensor weight, Tensor bias, int groups, Tensor? count, Tensor? mean, Tensor? variance, "
      "Tensor? padding_mask, float eps, bool narrow) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "timestep_norm_backward(Tensor grad_y, Tensor? grad_narrow, Tensor? grad_mean, Tensor? grad_variance, Tensor x, "
      "Tensor weight, int groups, Tensor? count, Tensor? mean, Tensor? variance, Tensor? padding_mask, Tensor tiles, "
      "float eps) -> (Tensor, Tensor, Tensor, Tensor)");
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
