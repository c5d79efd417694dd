// Operators of the norms of rows: shapes, strides and memory; see norm.h.
#include "norm/norm.h"

#include "common/row_bindings.h"

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
    check_cuda("row_norm", norm_forward_cuda(shape, in, y, current_stream(x)));
  }
  static Tensor backward(const NormShape& shape, const NormInputs& in, NormGradients& gradients, const Tensor& x) {
    const char* op = "row_norm_backward";
    check(shape, op);
    DeviceOf guard(x);
    Tensor parts = torch::stable::new_empty(x, {norm_parts(shape.rows), 2, shape.width}, ScalarType::Float);
    const CudaSums all(parts, {2, shape.width}, 1);
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

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
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
}
#endif
