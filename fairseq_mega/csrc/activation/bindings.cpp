// Operators of activations: shapes, strides and memory; see activation.h. There are kernels for CPUs only.
#include "common/bindings.h"

#if defined(FM_LIBRARY_CPU)
#include "activation/activation.h"

namespace fm {
namespace {

ActivationShape shape_of(const Tensor& x, const char* op) {
  ActivationShape shape;
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x must have at least one axis");
  shape.dtype = element_type(x, "x");
  shape.width = x.size(x.dim() - 1);
  shape.rows = shape.width > 0 ? x.numel() / shape.width : 0;
  return shape;
}

void check_like(const Tensor& t, const Tensor& x, const char* op, const char* name) {
  STD_TORCH_CHECK(same_shape(t, x) && t.scalar_type() == x.scalar_type(), op, ": ", name,
                  " must have the shape and type of x");
}

// Coefficients of the columns, `count` for each.
Tensor columns(const Tensor& t, const ActivationShape& shape, int64_t count, const char* op, const char* name) {
  STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float && t.numel() == count * shape.width, op, ": ", name,
                  " must be float32, ", count, " for each column of x");
  return packed(t);
}

// Runs a kernel for all parts of the rows.
template <class Kernel>
void for_parts(const ActivationShape& shape, const Kernel& kernel) {
  torch::stable::parallel_for(0, shape.parts(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) kernel(part);
  });
}

// Sums over the parts.
Tensor total(const Tensor& parts, int64_t count, std::vector<int64_t> size) {
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

struct Silu {
  ActivationShape shape;
  RowView x;
  std::optional<RowView> factor, skip;
  std::optional<Tensor> omega;

  Silu(const Tensor& x, const std::optional<Tensor>& factor, const std::optional<Tensor>& skip,
       const std::optional<Tensor>& omega, const char* op)
      : shape(shape_of(x, op)), x(rows_of(x)) {
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

  static RowsIn rows(const RowView& view) { return {view.tensor.const_data_ptr(), view.stride}; }

  SiluInputs inputs() const {
    return {rows(x), factor ? rows(*factor) : RowsIn(), skip ? rows(*skip) : RowsIn(), data_or_null<float>(omega)};
  }
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

std::tuple<Tensor, Tensor> query_key(Tensor x, Tensor kappa, Tensor mu) {
  const char* op = "query_key";
  const ActivationShape shape = shape_of(x, op);
  check_devices(op, {{"x", x}, {"kappa", kappa}, {"mu", mu}});
  const RowView rows = rows_of(x);
  const Tensor scales = columns(kappa, shape, 2, op, "kappa"), offsets = columns(mu, shape, 2, op, "mu");
  Tensor query = like(x), key = like(x);
  const QueryKey in{Silu::rows(rows), scales.const_data_ptr<float>(), offsets.const_data_ptr<float>()};
  void *q = query.mutable_data_ptr(), *k = key.mutable_data_ptr();
  for_parts(shape, [&](int64_t part) { query_key_forward_cpu(shape, in, q, k, part); });
  return {query, key};
}

std::tuple<Tensor, Tensor> query_key_backward(Tensor grad_query, Tensor grad_key, Tensor x, Tensor kappa) {
  const char* op = "query_key_backward";
  const ActivationShape shape = shape_of(x, op);
  check_devices(op, {{"x", x}, {"kappa", kappa}, {"grad_query", grad_query}, {"grad_key", grad_key}});
  check_like(grad_query, x, op, "the gradient of the query");
  check_like(grad_key, x, op, "the gradient of the key");
  const RowView rows = rows_of(x);
  const Tensor scales = columns(kappa, shape, 2, op, "kappa"), q = packed(grad_query), k = packed(grad_key);
  Tensor grad_x = like(x);
  Tensor sums = torch::stable::new_empty(x, {shape.parts(), 4, shape.width}, ScalarType::Float);
  const QueryKey in{Silu::rows(rows), scales.const_data_ptr<float>(), nullptr};
  const QueryKeyGradients gradients{q.const_data_ptr(), k.const_data_ptr(), grad_x.mutable_data_ptr(),
                                    sums.mutable_data_ptr<float>()};
  for_parts(shape, [&](int64_t part) { query_key_backward_cpu(shape, in, gradients, part); });
  return {grad_x, total(sums, shape.parts(), {2, 2, shape.width})};
}

Tensor dropout(Tensor x, Tensor seed, double p) {
  const char* op = "dropout";
  const ActivationShape shape = shape_of(x, op);
  check_devices(op, {{"x", x}, {"seed", seed}});
  const Dropping dropping = dropping_of(seed, p, op);
  const RowView rows = rows_of(x);
  Tensor out = like(x);
  void* to = out.mutable_data_ptr();
  for_parts(shape, [&](int64_t part) { dropout_cpu(shape, dropping, Silu::rows(rows), to, part); });
  return out;
}

}  // namespace
}  // namespace fm
#endif

FM_LIBRARY(m) {
  m.def("silu(Tensor x, Tensor? factor, Tensor? skip, Tensor? omega) -> Tensor");
  m.def(
      "silu_backward(Tensor grad, Tensor x, Tensor? factor, Tensor? skip, Tensor? omega) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  m.def("query_key(Tensor x, Tensor kappa, Tensor mu) -> (Tensor, Tensor)");
  m.def("query_key_backward(Tensor grad_query, Tensor grad_key, Tensor x, Tensor kappa) -> (Tensor, Tensor)");
  m.def("dropout(Tensor x, Tensor seed, float p) -> Tensor");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("silu", TORCH_BOX(&fm::silu));
  m.impl("silu_backward", TORCH_BOX(&fm::silu_backward));
  m.impl("query_key", TORCH_BOX(&fm::query_key));
  m.impl("query_key_backward", TORCH_BOX(&fm::query_key_backward));
  m.impl("dropout", TORCH_BOX(&fm::dropout));
}
#endif
