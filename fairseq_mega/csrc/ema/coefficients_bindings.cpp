// Operators of the EMA's coefficients: shapes, types and memory; see coefficients.h. They have kernels for GPUs only.
#include "common/bindings.h"
#include "ema/coefficients.h"

FM_LIBRARY(m) {
  m.def("ema_coefficients(Tensor alpha, Tensor delta, Tensor beta, Tensor eta) -> (Tensor, Tensor, Tensor)");
  m.def(
      "ema_coefficients_backward(Tensor grad_log_decay, Tensor grad_expansion, Tensor grad_projection, Tensor alpha, "
      "Tensor delta, Tensor beta, Tensor eta) -> (Tensor, Tensor, Tensor, Tensor)");
}

#if defined(FM_WITH_CUDA)
namespace fm {
namespace {

struct Expected {
  const char* name;
  const Tensor* tensor;
  std::vector<int64_t> size;
};

void check(const char* op, std::initializer_list<Expected> tensors) {
  const Tensor& first = *tensors.begin()->tensor;
  for (const Expected& one : tensors) {
    check_devices(op, {{tensors.begin()->name, first}, {one.name, *one.tensor}});
    bool fits = one.tensor->scalar_type() == ScalarType::Float && one.tensor->dim() == int64_t(one.size.size());
    for (int64_t axis = 0; fits && axis < one.tensor->dim(); ++axis) fits = one.tensor->size(axis) == one.size[axis];
    STD_TORCH_CHECK(fits, op, ": ", one.name, " must be float32 of the size of the others");
  }
}

std::vector<int64_t> with_parts(std::vector<int64_t> size, const EmaShape& shape) {
  if (shape.complex) size.push_back(2);
  return size;
}

// Sizes of coefficients (K, N); a scan in one direction has as many rows.
EmaShape shape_of(const Tensor& t, bool complex, const char* op) {
  STD_TORCH_CHECK(t.dim() == 2 && t.size(1) >= 1, op, ": coefficients must be (K, N) with N at least 1");
  EmaShape shape;
  shape.width = t.size(0);
  shape.n = static_cast<int>(t.size(1));
  shape.complex = complex;
  return shape;
}

struct Learned {
  EmaShape shape;
  Tensor alpha, delta, beta, eta;

  EmaLearned data() const {
    return {alpha.const_data_ptr<float>(), delta.const_data_ptr<float>(), beta.const_data_ptr<float>(),
            eta.const_data_ptr<float>()};
  }
};

Learned pack(const Tensor& alpha, const Tensor& delta, const Tensor& beta, const Tensor& eta, const char* op) {
  const EmaShape shape = shape_of(alpha, eta.dim() == 3, op);
  const std::vector<int64_t> size{shape.width, shape.n}, angles{shape.width, 1};
  check(op, {{"alpha", &alpha, size},
             {"delta", &delta, size},
             {shape.complex ? "theta" : "beta", &beta, shape.complex ? angles : size},
             {shape.complex ? "gamma" : "eta", &eta, with_parts(size, shape)}});
  return {shape, packed(alpha), packed(delta), packed(beta), packed(eta)};
}

std::tuple<Tensor, Tensor, Tensor> ema_coefficients(Tensor alpha, Tensor delta, Tensor beta, Tensor eta) {
  const char* op = "ema_coefficients";
  const Learned in = pack(alpha, delta, beta, eta, op);
  const std::vector<int64_t> size{in.shape.width, in.shape.n};
  Tensor log_decay = torch::stable::new_empty(in.alpha, with_parts(size, in.shape)), expansion = like(in.alpha);
  Tensor projection = like(in.eta);
  if (alpha.numel() > 0) {
    DeviceOf guard(alpha);
    check_cuda(op, ema_coefficients_cuda(in.shape, in.data(),
                                         {log_decay.mutable_data_ptr<float>(), expansion.mutable_data_ptr<float>(),
                                          projection.mutable_data_ptr<float>()},
                                         current_stream(alpha)));
  }
  return {log_decay, expansion, projection};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> ema_coefficients_backward(Tensor grad_log_decay, Tensor grad_expansion,
                                                                     Tensor grad_projection, Tensor alpha,
                                                                     Tensor delta, Tensor beta, Tensor eta) {
  const char* op = "ema_coefficients_backward";
  const Learned in = pack(alpha, delta, beta, eta, op);
  const std::vector<int64_t> size{in.shape.width, in.shape.n};
  check(op, {{"alpha", &alpha, size},
             {"the gradient of log_decay", &grad_log_decay, with_parts(size, in.shape)},
             {"the gradient of the expansion", &grad_expansion, size},
             {"the gradient of the projection", &grad_projection, with_parts(size, in.shape)}});
  const Tensor l = packed(grad_log_decay), e = packed(grad_expansion), j = packed(grad_projection);
  Tensor grad_alpha = like(in.alpha), grad_delta = like(in.delta), grad_beta = like(in.beta), grad_eta = like(in.eta);
  if (alpha.numel() > 0) {
    DeviceOf guard(alpha);
    check_cuda(op, ema_coefficients_backward_cuda(
                       in.shape, in.data(),
                       {l.const_data_ptr<float>(), e.const_data_ptr<float>(), j.const_data_ptr<float>()},
                       {grad_alpha.mutable_data_ptr<float>(), grad_delta.mutable_data_ptr<float>(),
                        grad_beta.mutable_data_ptr<float>(), grad_eta.mutable_data_ptr<float>()},
                       current_stream(alpha)));
  }
  return {grad_alpha, grad_delta, grad_beta, grad_eta};
}

}  // namespace
}  // namespace fm

FM_LIBRARY_CUDA(m) {
  m.impl("ema_coefficients", TORCH_BOX(&fm::ema_coefficients));
  m.impl("ema_coefficients_backward", TORCH_BOX(&fm::ema_coefficients_backward));
}
#endif
