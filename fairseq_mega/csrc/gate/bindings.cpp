// Operators of the update gate: shapes, strides and memory; see gate.h.
#include "gate/views.h"

namespace fm {
namespace {

int64_t grain(const GateShape& shape) { return std::max<int64_t>(1, 32768 / std::max<int64_t>(shape.width, 1)); }

struct Cpu {
  static void check(const GateViews& v) {
    STD_TORCH_CHECK(v.update && !v.bias,
                    "gated_residual: there are kernels without an update gate, or with a bias, for GPUs only");
  }
  static void forward(const GateViews& v, const Tensor&, void* out) {
    check(v);
    torch::stable::parallel_for(0, v.shape.rows, grain(v.shape), [&](int64_t begin, int64_t end) {
      gate_forward_cpu(v.shape, v.inputs(), out, begin, end);
    });
  }
  // Returns the gradient of the bias.
  static Tensor backward(const GateViews& v, const Tensor& x, GateGradients& gradients) {
    check(v);
    torch::stable::parallel_for(0, v.shape.rows, grain(v.shape), [&](int64_t begin, int64_t end) {
      gate_backward_cpu(v.shape, v.inputs(), gradients, begin, end);
    });
    return torch::stable::new_empty(x, {0}, ScalarType::Float);
  }
};

#if defined(FM_WITH_CUDA)
struct Cuda {
  static void forward(const GateViews& v, const Tensor& x, void* out) {
    DeviceOf guard(x);
    const int error = gate_forward_cuda(v.shape, v.inputs(), out, current_stream(x));
    check_cuda("gated_residual", error);
  }
  static Tensor backward(const GateViews& v, const Tensor& x, GateGradients& gradients) {
    DeviceOf guard(x);
    const int64_t parts = v.bias ? v.shape.parts() : 0, width = v.bias ? v.shape.width : 0;
    const CudaSums all(torch::stable::new_empty(x, {parts, width}, ScalarType::Float), {width},
                       v.bias ? row_tiles(v.shape) : 0);
    gradients.bias = all.memory;
    const auto run = [&](void* stream) { return gate_backward_cuda(v.shape, v.inputs(), gradients, stream); };
    return all.by("gated_residual_backward", v.shape, run);
  }
};
#endif

template <class Device>
Tensor gated_residual(Tensor x, std::optional<Tensor> update, Tensor candidate, std::optional<Tensor> addend,
                      std::optional<Tensor> bias, std::optional<Tensor> seed, double p) {
  const GateViews v = gate_views(x, update, candidate, addend, bias, seed, p, "gated_residual");
  Tensor out = like(x);
  if (x.numel() > 0) Device::forward(v, x, out.mutable_data_ptr());
  return out;
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor> gated_residual_backward(Tensor grad, Tensor x, std::optional<Tensor> update,
                                                                   Tensor candidate, std::optional<Tensor> addend,
                                                                   std::optional<Tensor> bias,
                                                                   std::optional<Tensor> seed, double p) {
  const char* op = "gated_residual_backward";
  const GateViews v = gate_views(x, update, candidate, addend, bias, seed, p, op);
  STD_TORCH_CHECK(grad.scalar_type() == x.scalar_type() && grad.numel() == x.numel(), op,
                  ": the gradient must have the shape and type of x");
  check_devices(op, {{"residual", x}, {"the gradient", grad}});
  const Tensor g = packed(grad);
  const auto gradient = [&](const Tensor& t) { return update ? like(t) : torch::stable::new_empty(t, {0}); };
  Tensor grad_x = gradient(x), grad_update = gradient(candidate), grad_candidate = like(candidate);
  GateGradients gradients{g.const_data_ptr(), grad_x.mutable_data_ptr(), grad_update.mutable_data_ptr(),
                          grad_candidate.mutable_data_ptr(), {}};
  return {grad_x, grad_update, grad_candidate, Device::backward(v, x, gradients)};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "gated_residual(Tensor x, Tensor? update, Tensor candidate, Tensor? addend, Tensor? bias, Tensor? seed, float p) "
      "-> Tensor");
  m.def(
      "gated_residual_backward(Tensor grad, Tensor x, Tensor? update, Tensor candidate, Tensor? addend, Tensor? bias, "
      "Tensor? seed, float p) -> (Tensor, Tensor, Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("gated_residual", TORCH_BOX(&fm::gated_residual<fm::Cpu>));
  m.impl("gated_residual_backward", TORCH_BOX(&fm::gated_residual_backward<fm::Cpu>));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("gated_residual", TORCH_BOX(&fm::gated_residual<fm::Cuda>));
  m.impl("gated_residual_backward", TORCH_BOX(&fm::gated_residual_backward<fm::Cuda>));
}
#endif
