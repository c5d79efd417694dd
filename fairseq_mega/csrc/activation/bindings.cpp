// Operators of activations: shapes, strides and memory; see activation.h.
#include "activation/activation.h"
#include "common/row_bindings.h"

namespace fm {
namespace {

struct Silu {
  RowParts shape;
  RowView x;
  std::optional<RowView> factor, skip;
  std::optional<Tensor> omega, bias;
  Dropping dropping;
  bool activated;

  Silu(const Tensor& x, const std::optional<Tensor>& factor, const std::optional<Tensor>& skip,
       const std::optional<Tensor>& omega, const std::optional<Tensor>& bias, const std::optional<Tensor>& seed,
       double p, bool activated, const char* op)
      : shape(row_parts(x, op)), x(rows_of(x)), activated(activated) {
    check_devices(op, {{"x", x}, {"factor", factor}, {"skip", skip}, {"omega", omega}, {"bias", bias}, {"seed", seed}});
    if (bias) this->bias = columns(*bias, shape, 1, op, "bias");
    if (seed) dropping = dropping_of(*seed, p, op);
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

  SiluInputs inputs() const {
    return {rows_in(x), rows_in(factor), rows_in(skip), data_or_null<float>(omega), data_or_null<float>(bias),
            activated, dropping};
  }
};

struct Cpu {
  static void check(const SiluInputs& in) {
    STD_TORCH_CHECK(in.activated && !in.dropping.seed && !in.bias,
                    "silu: dropout, a bias, or no SiLU, have kernels for GPUs only");
  }
  static void forward(const RowParts& shape, const SiluInputs& in, const Tensor&, void* out) {
    check(in);
    for_parts(shape, [&](int64_t part) { silu_forward_cpu(shape, in, out, part); });
  }
  static Tensor backward(const RowParts& shape, const SiluInputs& in, SiluGradients& gradients, Tensor& sums) {
    check(in);
    gradients.columns = {sums.mutable_data_ptr<float>()};
    for_parts(shape, [&](int64_t part) { silu_backward_cpu(shape, in, gradients, part); });
    return total(sums, sums.size(0), {2, sums.size(2)});
  }
};

#if defined(FM_WITH_CUDA)
struct Cuda {
  static void forward(const RowParts& shape, const SiluInputs& in, const Tensor& x, void* out) {
    if (shape.rows == 0) return;
    DeviceOf guard(x);
    check_cuda("silu", silu_forward_cuda(shape, in, out, current_stream(x)));
  }
  static Tensor backward(const RowParts& shape, const SiluInputs& in, SiluGradients& gradients, Tensor& sums) {
    DeviceOf guard(sums);
    const CudaSums all(sums, {2, sums.size(2)}, sums.numel() > 0 ? row_tiles(shape) : 0);
    gradients.columns = all.memory;
    return all.by("silu_backward", shape, [&](void* stream) { return silu_backward_cuda(shape, in, gradients, stream); });
  }
};
#endif

template <class Device>
Tensor silu(Tensor x, std::optional<Tensor> factor, std::optional<Tensor> skip, std::optional<Tensor> omega,
            std::optional<Tensor> bias, std::optional<Tensor> seed, double p, bool activated) {
  const Silu call(x, factor, skip, omega, bias, seed, p, activated, "silu");
  Tensor out = like(x);
  Device::forward(call.shape, call.inputs(), x, out.mutable_data_ptr());
  return out;
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor> silu_backward(Tensor grad, Tensor x, std::optional<Tensor> factor,
                                                         std::optional<Tensor> skip, std::optional<Tensor> omega,
                                                         std::optional<Tensor> bias, std::optional<Tensor> seed,
                                                         double p, bool activated) {
  const char* op = "silu_backward";
  const Silu call(x, factor, skip, omega, bias, seed, p, activated, op);
  check_like(grad, x, op, "the gradient");
  check_devices(op, {{"x", x}, {"the gradient", grad}});
  const Tensor g = packed(grad);
  const auto absent = [&] { return torch::stable::new_empty(x, {0}); };
  Tensor grad_x = like(x), grad_factor = factor ? like(x) : absent(), grad_skip = skip ? like(x) : absent();
  const int64_t parts = skip || bias ? call.shape.parts() : 0, width = skip || bias ? call.shape.width : 0;
  Tensor sums = torch::stable::new_empty(x, {parts, 2, width}, ScalarType::Float);
  SiluGradients gradients{g.const_data_ptr(), grad_x.mutable_data_ptr(), grad_factor.mutable_data_ptr(),
                          grad_skip.mutable_data_ptr(), call.shape.width, {}};
  return {grad_x, grad_factor, grad_skip, Device::backward(call.shape, call.inputs(), gradients, sums)};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "silu(Tensor x, Tensor? factor, Tensor? skip, Tensor? omega, Tensor? bias, Tensor? seed, float p, "
      "bool activated) -> Tensor");
  m.def(
      "silu_backward(Tensor grad, Tensor x, Tensor? factor, Tensor? skip, Tensor? omega, Tensor? bias, Tensor? seed, "
      "float p, bool activated) -> (Tensor, Tensor, Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("silu", TORCH_BOX(&fm::silu<fm::Cpu>));
  m.impl("silu_backward", TORCH_BOX(&fm::silu_backward<fm::Cpu>));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("silu", TORCH_BOX(&fm::silu<fm::Cuda>));
  m.impl("silu_backward", TORCH_BOX(&fm::silu_backward<fm::Cuda>));
}
#endif
