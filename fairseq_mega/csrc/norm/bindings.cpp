// Operators of the norms of rows: shapes, strides and memory; see norm.h. There are kernels for CPUs only.
#include "common/bindings.h"

#if defined(FM_LIBRARY_CPU)
#include "norm/norm.h"

namespace fm {
namespace {

// Coefficients of the columns, kept alive for the duration of a call.
std::optional<Tensor> columns(const std::optional<Tensor>& t, const NormShape& shape, const char* op) {
  STD_TORCH_CHECK(!t || (t->scalar_type() == ScalarType::Float && t->numel() == shape.width), op,
                  ": weight and bias must be float32, one for each column of x");
  return packed(t);
}

struct Norm {
  NormShape shape;
  RowView x;
  std::optional<Tensor> weight, bias;

  Norm(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, bool centred,
       double eps, bool narrow, const char* op)
      : x(rows_of(x)) {
    shape.dtype = element_type(x, "x");
    shape.result_dtype = narrow ? DType::kBFloat16 : shape.dtype;
    STD_TORCH_CHECK(!narrow || shape.dtype != DType::kFloat16, op, ": a float16 input has no bfloat16 result");
    shape.width = x.size(x.dim() - 1);
    shape.rows = shape.width > 0 ? x.numel() / shape.width : 0;
    shape.centred = centred;
    shape.eps = static_cast<float>(eps);
    check_devices(op, {{"x", x}, {"weight", weight}, {"bias", bias}});
    this->weight = columns(weight, shape, op);
    this->bias = columns(bias, shape, op);
  }

  NormInputs inputs() const {
    return {x.tensor.const_data_ptr(), x.stride, data_or_null<float>(weight), data_or_null<float>(bias)};
  }

  template <class Kernel>
  void for_parts(const Kernel& kernel) const {
    torch::stable::parallel_for(0, shape.parts(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) kernel(part);
    });
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
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x must have at least one axis");
  const Norm call(x, weight, bias, centred, eps, narrow, op);
  Tensor y = torch::stable::new_empty(x, size_of(x), narrow ? ScalarType::BFloat16 : x.scalar_type());
  const NormInputs in = call.inputs();
  void* to = y.mutable_data_ptr();
  call.for_parts([&](int64_t part) { norm_forward_cpu(call.shape, in, to, part); });
  return y;
}

std::tuple<Tensor, Tensor> row_norm_backward(Tensor grad, Tensor x, std::optional<Tensor> weight, bool centred,
                                             double eps, bool narrow) {
  const char* op = "row_norm_backward";
  STD_TORCH_CHECK(x.dim() >= 1 && same_shape(grad, x), op, ": the gradient must have the shape of x");
  const Norm call(x, weight, std::nullopt, centred, eps, narrow, op);
  STD_TORCH_CHECK(element_type(grad, "the gradient") == call.shape.result_dtype, op,
                  ": the gradient must have the type of the result");
  check_devices(op, {{"x", x}, {"the gradient", grad}});
  const Tensor g = packed(grad);
  Tensor grad_x = like(x);
  Tensor sums = torch::stable::new_empty(x, {call.shape.parts(), 2, call.shape.width}, ScalarType::Float);
  const NormInputs in = call.inputs();
  const NormGradients gradients{g.const_data_ptr(), grad_x.mutable_data_ptr(), sums.mutable_data_ptr<float>()};
  call.for_parts([&](int64_t part) { norm_backward_cpu(call.shape, in, gradients, part); });
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
