// Operators of the norms of rows: shapes, strides and memory; see norm.h.
#include "norm/norm.h"

#include "gate/views.h"

namespace fm {
namespace {

struct Norm {
  NormShape shape;
  RowView x;
  std::optional<Tensor> weight, bias;

  Norm(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, bool centred,
       double eps, double origin, bool narrow, const char* op)
      : shape{row_parts(x, op)}, x(rows_of(x)) {
    shape.result_dtype = narrow ? DType::kBFloat16 : shape.dtype;
    STD_TORCH_CHECK(!narrow || shape.dtype != DType::kFloat16, op, ": a float16 input has no bfloat16 result");
    shape.centred = centred;
    shape.eps = static_cast<float>(eps);
    shape.origin = static_cast<float>(origin);
    check_devices(op, {{"x", x}, {"weight", weight}, {"bias", bias}});
    if (weight) this->weight = columns(*weight, shape, 1, op, "weight");
    if (bias) this->bias = columns(*bias, shape, 1, op, "bias");
  }

  NormInputs inputs() const {
    return {x.tensor.const_data_ptr(), x.stride, data_or_null<float>(weight), data_or_null<float>(bias)};
  }
};

std::vector<int64_t> size_of(const Tensor& x) {
  std::vector<int64_t> size(x.dim());
  for (int64_t axis = 0; axis < x.dim(); ++axis) size[axis] = x.size(axis);
  return size;
}

struct Cpu {
  static void forward(const NormShape& shape, const NormInputs& in, const Tensor&, void* y) {
    for_parts(shape, [&](int64_t part) { norm_forward_cpu(shape, in, y, part); });
  }
  // Returns the gradients of weight and bias.
  static Tensor backward(const NormShape& shape, const NormInputs& in, NormGradients& gradients, const Tensor& x) {
    Tensor parts = torch::stable::new_empty(x, {shape.parts(), 2, shape.width}, ScalarType::Float);
    gradients.coefficients = {parts.mutable_data_ptr<float>()};
    for_parts(shape, [&](int64_t part) { norm_backward_cpu(shape, in, gradients, part); });
    return total(parts, shape.parts(), {2, shape.width});
  }
};

#if defined(FM_WITH_CUDA)
struct Cuda {
  static void check(const NormShape& shape, const char* op) {
    STD_TORCH_CHECK(shape.width <= kMostNormColumns, op, ": a GPU's kernel holds rows of at most ", kMostNormColumns,
                    " columns, found ", shape.width);
  }
  static void forward(const NormShape& shape, const NormInputs& in, const Tensor& x, void* y) {
    check(shape, "row_norm");
    if (shape.rows == 0) return;
    DeviceOf guard(x);
    const bool narrow = shape.result_dtype != shape.dtype;
    const NormResults out{nullptr, narrow ? nullptr : y, narrow ? y : nullptr};
    check_cuda("row_norm", norm_forward_cuda(shape, in, out, current_stream(x)));
  }
  static Tensor backward(const NormShape& shape, const NormInputs& in, NormGradients& gradients, const Tensor& x,
                         const char* op = "row_norm_backward") {
    check(shape, op);
    DeviceOf guard(x);
    if (shape.result_dtype != shape.dtype) std::swap(gradients.y, gradients.narrow);
    const int64_t sums = in.gate.candidate ? 3 : 2;
    Tensor parts = torch::stable::new_empty(x, {norm_parts(shape.rows), sums, shape.width}, ScalarType::Float);
    const CudaSums all(parts, {sums, shape.width}, 1);
    gradients.coefficients = all.memory;
    return all.by(op, shape, [&](void* stream) { return norm_backward_cuda(shape, in, gradients, stream); });
  }
};
#endif

template <class Device>
Tensor row_norm(Tensor x, std::optional<Tensor> weight, std::optional<Tensor> bias, bool centred, double eps,
                double origin, bool narrow) {
  const Norm call(x, weight, bias, centred, eps, origin, narrow, "row_norm");
  Tensor y = torch::stable::new_empty(x, size_of(x), narrow ? ScalarType::BFloat16 : x.scalar_type());
  Device::forward(call.shape, call.inputs(), x, y.mutable_data_ptr());
  return y;
}

template <class Device>
std::tuple<Tensor, Tensor> row_norm_backward(Tensor grad, Tensor x, std::optional<Tensor> weight, bool centred,
                                             double eps, double origin, bool narrow) {
  const char* op = "row_norm_backward";
  STD_TORCH_CHECK(same_shape(grad, x), op, ": the gradient must have the shape of x");
  const Norm call(x, weight, std::nullopt, centred, eps, origin, narrow, op);
  STD_TORCH_CHECK(element_type(grad, "the gradient") == call.shape.result_dtype, op,
                  ": the gradient must have the type of the result");
  check_devices(op, {{"x", x}, {"the gradient", grad}});
  const Tensor g = packed(grad);
  Tensor grad_x = like(x);
  NormGradients gradients{g.const_data_ptr(), grad_x.mutable_data_ptr(), {}};
  return {grad_x, Device::backward(call.shape, call.inputs(), gradients, x)};
}

#if defined(FM_WITH_CUDA)
// The norm of the update gate's result.
struct GatedNorm : Norm {
  GateViews gate;

  GatedNorm(const Tensor& x, const std::optional<Tensor>& update, const Tensor& candidate,
            const std::optional<Tensor>& addend, const std::optional<Tensor>& gate_bias,
            const std::optional<Tensor>& seed, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
            double p, bool centred, double eps, double origin, const char* op)
      : Norm(x, weight, bias, centred, eps, origin, false, op),
        gate(gate_views(x, update, candidate, addend, gate_bias, seed, p, op)) {
    shape.gate_dtype = gate.shape.dtype;
    Cuda::check(shape, op);
  }

  NormInputs inputs() const {
    return {nullptr, 0, data_or_null<float>(weight), data_or_null<float>(bias), gate.inputs()};
  }
};

std::tuple<Tensor, Tensor> gated_residual_norm(Tensor x, std::optional<Tensor> update, Tensor candidate,
                                               std::optional<Tensor> addend, std::optional<Tensor> gate_bias,
                                               std::optional<Tensor> seed, std::optional<Tensor> weight,
                                               std::optional<Tensor> bias, double p, bool centred, double eps,
                                               double origin, bool sum, bool narrow) {
  const char* op = "gated_residual_norm";
  const GatedNorm call(x, update, candidate, addend, gate_bias, seed, weight, bias, p, centred, eps, origin, op);
  const std::vector<int64_t> size = size_of(x), absent{0};
  Tensor first = like(x), second = torch::stable::new_empty(x, sum || narrow ? size : absent,
                                                            narrow ? ScalarType::BFloat16 : x.scalar_type());
  void* of_norm = sum ? second.mutable_data_ptr() : first.mutable_data_ptr();
  const NormResults out{sum ? first.mutable_data_ptr() : nullptr, sum && narrow ? nullptr : of_norm,
                        narrow ? second.mutable_data_ptr() : nullptr};
  DeviceOf guard(x);
  if (x.numel() > 0) check_cuda(op, norm_forward_cuda(call.shape, call.inputs(), out, current_stream(x)));
  return {first, second};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> gated_residual_norm_backward(
    std::optional<Tensor> grad_sum, std::optional<Tensor> grad_y, std::optional<Tensor> grad_narrow, Tensor x,
    std::optional<Tensor> update, Tensor candidate, std::optional<Tensor> addend, std::optional<Tensor> gate_bias,
    std::optional<Tensor> seed, std::optional<Tensor> weight, double p, bool centred, double eps, double origin) {
  const char* op = "gated_residual_norm_backward";
  const GatedNorm call(x, update, candidate, addend, gate_bias, seed, weight, {}, p, centred, eps, origin, op);
  for (std::optional<Tensor>* grad : {&grad_sum, &grad_y, &grad_narrow}) {
    if (!*grad) continue;
    const ScalarType type = grad == &grad_narrow ? ScalarType::BFloat16 : x.scalar_type();
    STD_TORCH_CHECK(same_shape(**grad, x) && (*grad)->scalar_type() == type, op,
                    ": the gradients must have the shape and types of the results");
    check_devices(op, {{"residual", x}, {"the gradient", *grad}});
    *grad = packed(*grad);
  }
  Tensor grad_x = like(x), grad_update = update ? like(candidate) : torch::stable::new_empty(candidate, {0});
  Tensor grad_candidate = like(candidate);
  NormGradients gradients{data_or_null<void>(grad_y), grad_x.mutable_data_ptr(), {},
                          data_or_null<void>(grad_sum), data_or_null<void>(grad_narrow),
                          grad_update.mutable_data_ptr(), grad_candidate.mutable_data_ptr()};
  return {grad_x, grad_update, grad_candidate, Cuda::backward(call.shape, call.inputs(), gradients, x, op)};
}
#endif

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "gated_residual_norm(Tensor x, Tensor? update, Tensor candidate, Tensor? addend, Tensor? gate_bias, "
      "Tensor? seed, Tensor? weight, Tensor? bias, float p, bool centred, float eps, float origin, bool sum, "
      "bool narrow) -> (Tensor, Tensor)");
  m.def(
      "gated_residual_norm_backward(Tensor? grad_sum, Tensor? grad_y, Tensor? grad_narrow, Tensor x, Tensor? update, "
      "Tensor candidate, Tensor? addend, Tensor? gate_bias, Tensor? seed, Tensor? weight, float p, bool centred, "
      "float eps, float origin) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "row_norm(Tensor x, Tensor? weight, Tensor? bias, bool centred, float eps, float origin, bool narrow) -> Tensor");
  m.def(
      "row_norm_backward(Tensor grad, Tensor x, Tensor? weight, bool centred, float eps, float origin, bool narrow) -> "
      "(Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("row_norm", TORCH_BOX(&fm::row_norm<fm::Cpu>));
  m.impl("row_norm_backward", TORCH_BOX(&fm::row_norm_backward<fm::Cpu>));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("row_norm", TORCH_BOX(&fm::row_norm<fm::Cuda>));
  m.impl("row_norm_backward", TORCH_BOX(&fm::row_norm_backward<fm::Cuda>));
  m.impl("gated_residual_norm", TORCH_BOX(&fm::gated_residual_norm));
  m.impl("gated_residual_norm_backward", TORCH_BOX(&fm::gated_residual_norm_backward));
}
#endif
