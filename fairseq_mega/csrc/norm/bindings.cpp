// Operators of the norms of rows: shapes, strides and memory; see norm.h. There are kernels for CPUs only.
#include "common/row_bindings.h"

#if defined(FM_LIBRARY_CPU)
#include "norm/norm.h"

namespace fm {
namespace {

struct Norm {
  NormShape shape;
  RowView x;
  std::optional<Tensor> weight, bias;

  Norm(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, bool centred,
       double eps, bool narrow, const char* op)
      : shape{row_parts(x, op)}, x(rows_of(x)) {
    shape.result_dtype = narrow ? DType::kBFloat16 : shape.dtype;
    STD_TORCH_CHECK(!narrow || shape.dtype != DType::kFloat16, op, ": a float16 input has no bfloat16 result");
    shape.centred = centred;
    shape.eps = static_cast<float>(eps);
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

Tensor row_norm(Tensor x, std::optional<Tensor> weight, std::optional<Tensor> bias, bool centred, double eps,
                bool narrow) {
  const char* op = "row_norm";
  const Norm call(x, weight, bias, centred, eps, narrow, op);
  Tensor y = torch::stable::new_empty(x, size_of(x), narrow ? ScalarType::BFloat16 : x.scalar_type());
  const NormInputs in = call.inputs();
  void* to = y.mutable_data_ptr();
  for_parts(call.shape, [&](int64_t part) { norm_forward_cpu(call.shape, in, to, part); });
  return y;
}

std::tuple<Tensor, Tensor> row_norm_backward(Tensor grad, Tensor x, std::optional<Tensor> weight, bool centred,
                                             double eps, bool narrow) {
  const char* op = "row_norm_backward";
  STD_TORCH_CHECK(same_shape(grad, x), op, ": the gradient must have the shape of x");
  const Norm call(x, weight, std::nullopt, centred, eps, narrow, op);
  STD_TORCH_CHECK(element_type(grad, "the gradient") == call.shape.result_dtype, op,
                  ": the gradient must have the type of the result");
  check_devices(op, {{"x", x}, {"the gradient", grad}});
  const Tensor g = packed(grad);
  Tensor grad_x = like(x);
  Tensor sums = torch::stable::new_empty(x, {call.shape.parts(), 2, call.shape.width}, ScalarType::Float);
  const NormInputs in = call.inputs();
  const NormGradients gradients{g.const_data_ptr(), grad_x.mutable_data_ptr(), sums.mutable_data_ptr<float>()};
  for_parts(call.shape, [&](int64_t part) { norm_backward_cpu(call.shape, in, gradients, part); });
  return {grad_x, sums};
}

}  // namespace
}  // namespace fm
#endif

FM_LIBRARY(m) {
  m.def("row_norm(Tensor x, Tensor? weight, Tensor? bias, bool centred, float eps, bool narrow) -> Tensor");
  m.def(
      "row_norm_backward(Tensor grad, Tensor x, Tensor? weight, bool centred, float eps, bool narrow) -> "
      "(Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("row_norm", TORCH_BOX(&fm::row_norm));
  m.impl("row_norm_backward", TORCH_BOX(&fm::row_norm_backward));
}
#endif
