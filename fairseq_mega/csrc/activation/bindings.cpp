// Operators of activations: shapes, strides and memory; see activation.h. There are kernels for CPUs only.
#include "common/row_bindings.h"

#if defined(FM_LIBRARY_CPU)
#include "activation/activation.h"

namespace fm {
namespace {

struct Silu {
  RowParts shape;
  RowView x;
  std::optional<RowView> factor, skip;
  std::optional<Tensor> omega;

  Silu(const Tensor& x, const std::optional<Tensor>& factor, const std::optional<Tensor>& skip,
       const std::optional<Tensor>& omega, const char* op)
      : shape(row_parts(x, op)), x(rows_of(x)) {
    check_devices(op, {{"x", x}, {"factor", factor}, {"skip", skip}, {"omega", omega}});
    STD_TORCH_CHECK(skip.has_value() == omega.has_value(), op, ": skip and omega belong together");
    if (factor) {
      check_like(*factor, x, op, "factor");
      this->factor = rows_of(*factor);
    }
    if (skip) {
      check_like(*skip, x, op, "skip");
      this->skip = rows_of(*skip);
      this->omega = columns(*omega, shape, 1, op, "omega");
    }
  }

  SiluInputs inputs() const { return {rows_in(x), rows_in(factor), rows_in(skip), data_or_null<float>(omega)}; }
};

Tensor silu(Tensor x, std::optional<Tensor> factor, std::optional<Tensor> skip, std::optional<Tensor> omega) {
  const Silu call(x, factor, skip, omega, "silu");
  Tensor out = like(x);
  const SiluInputs in = call.inputs();
  void* to = out.mutable_data_ptr();
  for_parts(call.shape, [&](int64_t part) { silu_forward_cpu(call.shape, in, to, part); });
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> silu_backward(Tensor grad, Tensor x, std::optional<Tensor> factor,
                                                         std::optional<Tensor> skip, std::optional<Tensor> omega) {
  const char* op = "silu_backward";
  const Silu call(x, factor, skip, omega, op);
  check_like(grad, x, op, "the gradient");
  check_devices(op, {{"x", x}, {"the gradient", grad}});
  const Tensor g = packed(grad);
  const auto absent = [&] { return torch::stable::new_empty(x, {0}); };
  Tensor grad_x = like(x), grad_factor = factor ? like(x) : absent(), grad_skip = skip ? like(x) : absent();
  const int64_t parts = skip ? call.shape.parts() : 0, width = skip ? call.shape.width : 0;
  Tensor sums = torch::stable::new_empty(x, {parts, width}, ScalarType::Float);
  const SiluInputs in = call.inputs();
  const SiluGradients gradients{g.const_data_ptr(), grad_x.mutable_data_ptr(), grad_factor.mutable_data_ptr(),
                                grad_skip.mutable_data_ptr(), call.shape.width, sums.mutable_data_ptr<float>()};
  for_parts(call.shape, [&](int64_t part) { silu_backward_cpu(call.shape, in, gradients, part); });
  return {grad_x, grad_factor, grad_skip, total(sums, parts, {width})};
}

}  // namespace
}  // namespace fm
#endif

FM_LIBRARY(m) {
  m.def("silu(Tensor x, Tensor? factor, Tensor? skip, Tensor? omega) -> Tensor");
  m.def(
      "silu_backward(Tensor grad, Tensor x, Tensor? factor, Tensor? skip, Tensor? omega) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("silu", TORCH_BOX(&fm::silu));
  m.impl("silu_backward", TORCH_BOX(&fm::silu_backward));
}
#endif
