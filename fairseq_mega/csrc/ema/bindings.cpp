// Operators of the EMA scan: shapes, types and memory; see ema_scan.h for what they compute.
#include "common/row_bindings.h"
#include "ema/ema_division.h"

namespace fm {
namespace {

void check_float32(const Tensor& t, const char* op, const char* name) {
  STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float, op, ": ", name, " must be float32");
}

void check_mask(const std::optional<Tensor>& mask, const EmaShape& shape, const char* op, const char* name) {
  if (!mask.has_value()) return;
  STD_TORCH_CHECK(mask->scalar_type() == ScalarType::Bool, op, ": ", name, " must be bool");
  STD_TORCH_CHECK(mask->dim() == 2 && mask->size(0) == shape.batch && mask->size(1) == shape.length, op, ": ", name,
                  " must be (B, L), as the input is");
}

void check_state(const std::optional<Tensor>& state, const EmaShape& shape, const char* op, const char* name) {
  if (!state.has_value()) return;
  check_float32(*state, op, name);
  STD_TORCH_CHECK(state->dim() == 2 + shape.parts() && state->size(0) == shape.batch &&
                      state->size(1) == shape.width && state->size(2) == shape.n,
                  op, ": ", name, " must be (B, D, N), or (B, D, N, 2) for complex coefficients");
}

EmaShape shape_of(const Tensor& x, const Tensor& log_decay, const Tensor& expansion, const Tensor& projection,
                  bool bidirectional, bool shift, int64_t truncation, const char* op) {
  EmaShape shape;
  STD_TORCH_CHECK(x.dim() == 3, op, ": x must be (B, L, D)");
  shape.batch = x.size(0);
  shape.length = x.size(1);
  shape.width = x.size(2);
  shape.dtype = element_type(x, "x");
  STD_TORCH_CHECK(expansion.dim() == 2 && expansion.size(1) >= 1, op, ": expansion must be (K, N) with N at least 1");
  shape.n = static_cast<int>(expansion.size(1));
  shape.complex = log_decay.dim() == 3;
  shape.bidirectional = bidirectional;
  shape.shift = shift;
  STD_TORCH_CHECK(truncation >= 0, op, ": truncation must be at least 1, or 0 for none");
  shape.truncation = truncation < shape.length ? truncation : 0;
  STD_TORCH_CHECK(expansion.size(0) == shape.rows(), op, ": coefficients must have D rows, or 2 D if bidirectional");
  const Tensor* rows[] = {&log_decay, &projection};
  for (const Tensor* t : rows) {
    STD_TORCH_CHECK(t->dim() == 1 + shape.parts() && t->size(0) == shape.rows() && t->size(1) == shape.n &&
                        (!shape.complex || t->size(2) == 2),
                    op, ": log_decay and projection must both be (K, N), or both (K, N, 2) for complex ones");
    check_float32(*t, op, "log_decay and projection");
  }
  check_float32(expansion, op, "expansion");
  return shape;
}

// Contiguous inputs of one call, kept alive for its duration.
struct Packed {
  Tensor x, log_decay, expansion, projection;
  std::optional<Tensor> state, padding, reset;
  EmaShape shape;

  EmaCoefficients coefficients() const {
    return {log_decay.const_data_ptr<float>(), expansion.const_data_ptr<float>(), projection.const_data_ptr<float>()};
  }
  EmaInputs inputs() const {
    return {x.const_data_ptr(), data_or_null<float>(state), data_or_null<bool>(padding), data_or_null<bool>(reset)};
  }
};

Packed pack(const Tensor& x, const Tensor& log_decay, const Tensor& expansion, const Tensor& projection,
            const std::optional<Tensor>& state, const std::optional<Tensor>& padding,
            const std::optional<Tensor>& reset, bool bidirectional, bool shift, int64_t truncation, const char* op) {
  check_devices(op, {{"x", x},
                     {"log_decay", log_decay},
                     {"expansion", expansion},
                     {"projection", projection},
                     {"state", state},
                     {"padding_mask", padding},
                     {"reset_mask", reset}});
  const EmaShape shape = shape_of(x, log_decay, expansion, projection, bidirectional, shift, truncation, op);
  check_state(state, shape, op, "state");
  check_mask(padding, shape, op, "padding_mask");
  check_mask(reset, shape, op, "reset_mask");
  STD_TORCH_CHECK(!(bidirectional && state.has_value()), op, ": a bidirectional EMA carries no state");
  STD_TORCH_CHECK(!(truncation > 0 && state.has_value()), op, ": a truncated EMA carries no state");
  STD_TORCH_CHECK(x.numel() > 0, op, ": x must not be empty");
  return {packed(x),      packed(log_decay), packed(expansion), packed(projection),
          packed(state),  packed(padding),   packed(reset),     shape};
}

// What follows the scan on a GPU, kept alive for the duration of a call.
struct Gate {
  std::optional<Tensor> omega;
  EmaGate gate;

  Gate(const std::optional<Tensor>& weight, const std::optional<Tensor>& seed, double p, bool activated,
       const Packed& of, const char* op)
      : omega(packed(weight)) {
    check_devices(op, {{"x", of.x}, {"omega", weight}, {"seed", seed}});
    STD_TORCH_CHECK(omega || !(activated || seed), op, ": a SiLU or dropout belongs to an omega");
    if (!omega) return;
    check_float32(*omega, op, "omega");
    STD_TORCH_CHECK(omega->dim() == 1 && omega->size(0) == of.shape.width, op, ": omega must be (D,)");
    gate.omega = omega->const_data_ptr<float>();
    gate.activated = activated;
    if (seed) gate.dropping = dropping_of(*seed, p, op);
  }
};

std::vector<int64_t> state_size(const EmaShape& shape) {
  if (shape.bidirectional) return {0};
  std::vector<int64_t> size{shape.batch, shape.width, shape.n};
  if (shape.complex) size.push_back(2);
  return size;
}

struct Cpu {
  static void forward(const Packed& p, const EmaGate& gate, const EmaOutputs& out) {
    STD_TORCH_CHECK(!gate.omega, "ema_scan: what follows the scan has a kernel for GPUs only");
    torch::stable::parallel_for(0, ema_scan_tasks_cpu(p.shape), 1, [&](int64_t begin, int64_t end) {
      ema_scan_forward_cpu(p.shape, p.coefficients(), p.inputs(), out, begin, end);
    });
  }
  static void backward(const Packed& p, const EmaGradients& out) {
    torch::stable::parallel_for(0, ema_scan_tasks_cpu(p.shape), 1, [&](int64_t begin, int64_t end) {
      ema_scan_backward_cpu(p.shape, p.coefficients(), p.inputs(), out, begin, end);
    });
  }
  static void step(const Tensor&, const EmaShape& shape, const EmaCoefficients& c, const EmaStep& step) {
    ema_step_cpu(shape, c, step);
  }
};

#if defined(FM_WITH_CUDA)
struct Cuda {
  static Tensor workspace(const Packed& p, bool backward) {
    const int64_t bytes = std::max<int64_t>(ema_scan_workspace_cuda(p.shape, backward), 4);
    return torch::stable::new_empty(p.expansion, {(bytes + 3) / 4});
  }
  static void forward(const Packed& p, const EmaGate& gate, const EmaOutputs& out) {
    DeviceOf guard(p.x);
    Tensor memory = workspace(p, false);
    const int error = ema_scan_forward_cuda(p.shape, p.coefficients(), p.inputs(), gate, out, memory.mutable_data_ptr(),
                                            current_stream(p.x));
    check_cuda("ema_scan", error);
  }
  static void step(const Tensor& x, const EmaShape& shape, const EmaCoefficients& c, const EmaStep& step) {
    DeviceOf guard(x);
    const int error = ema_step_cuda(shape, c, step, current_stream(x));
    check_cuda("ema_step", error);
  }
};
#endif

template <class Device>
std::tuple<Tensor, Tensor, Tensor> ema_scan(Tensor x, Tensor log_decay, Tensor expansion, Tensor projection,
                                            std::optional<Tensor> state, std::optional<Tensor> padding,
                                            std::optional<Tensor> reset, std::optional<Tensor> omega,
                                            std::optional<Tensor> seed, double p_drop, bool activated, bool keep_sum,
                                            bool bidirectional, bool shift, int64_t truncation) {
  const char* op = "ema_scan";
  const Packed p = pack(x, log_decay, expansion, projection, state, padding, reset, bidirectional, shift, truncation, op);
  Gate gate(omega, seed, p_drop, activated, p, op);
  const bool keeps = activated && keep_sum;
  Tensor sum = keeps ? torch::stable::empty_like(p.x) : torch::stable::new_empty(p.x, {0});
  if (keeps) gate.gate.sum = sum.mutable_data_ptr();
  Tensor y = torch::stable::empty_like(p.x);
  Tensor final_state = torch::stable::new_empty(p.expansion, state_size(p.shape));
  float* end = p.shape.bidirectional ? nullptr : final_state.mutable_data_ptr<float>();
  Device::forward(p, gate.gate, {y.mutable_data_ptr(), end});
  return {y, final_state, sum};
}

void check_gradients(const Tensor& grad_y, const std::optional<Tensor>& grad_state, const Packed& p, const char* op) {
  STD_TORCH_CHECK(grad_y.scalar_type() == p.x.scalar_type() && same_shape(grad_y, p.x), op,
                  ": the gradient must have the shape and type of x");
  check_devices(op, {{"x", p.x}, {"grad_y", grad_y}, {"grad_state", grad_state}});
  check_state(grad_state, p.shape, op, "the gradient of the final state");
  STD_TORCH_CHECK(!(grad_state.has_value() && (p.shape.bidirectional || p.shape.truncation > 0)), op,
                  ": a bidirectional or truncated EMA carries no state");
}

#if defined(FM_LIBRARY_CPU)
std::vector<int64_t> moments_size(const EmaShape& shape) {
  std::vector<int64_t> size{4, shape.batch, shape.rows(), shape.n};
  if (shape.complex) size.push_back(2);
  return size;
}

std::tuple<Tensor, Tensor, Tensor> ema_scan_backward(Tensor grad_y, std::optional<Tensor> grad_state, Tensor x,
                                                     Tensor log_decay, Tensor expansion, Tensor projection,
                                                     std::optional<Tensor> state, std::optional<Tensor> padding,
                                                     std::optional<Tensor> reset, bool bidirectional, bool shift,
                                                     int64_t truncation) {
  const char* op = "ema_scan_backward";
  const Packed p = pack(x, log_decay, expansion, projection, state, padding, reset, bidirectional, shift, truncation, op);
  check_gradients(grad_y, grad_state, p, op);
  const Tensor g = packed(grad_y);
  const std::optional<Tensor> gs = packed(grad_state);
  Tensor grad_x = torch::stable::empty_like(p.x);
  Tensor moments = torch::stable::new_empty(p.expansion, moments_size(p.shape));
  const std::vector<int64_t> nothing{0};
  Tensor moments_state = torch::stable::new_empty(p.expansion, gs.has_value() ? moments_size(p.shape) : nothing);
  Cpu::backward(p, {g.const_data_ptr(), data_or_null<float>(gs), grad_x.mutable_data_ptr(),
                    moments.mutable_data_ptr<float>(),
                    gs.has_value() ? moments_state.mutable_data_ptr<float>() : nullptr});
  return {grad_x, moments, moments_state};
}
#endif

#if defined(FM_WITH_CUDA)
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> ema_scan_gradients(
    Tensor grad_y, std::optional<Tensor> grad_state, Tensor sum, Tensor x, Tensor log_decay, Tensor expansion,
    Tensor projection, std::optional<Tensor> state, std::optional<Tensor> padding, std::optional<Tensor> reset,
    std::optional<Tensor> omega, std::optional<Tensor> seed, double p_drop, bool activated, bool keep_sum,
    bool bidirectional, bool shift, int64_t truncation) {
  const char* op = "ema_scan_gradients";
  const Packed p = pack(x, log_decay, expansion, projection, state, padding, reset, bidirectional, shift, truncation, op);
  check_gradients(grad_y, grad_state, p, op);
  Gate gate(omega, seed, p_drop, activated, p, op);
  STD_TORCH_CHECK(!(omega && padding && grad_state), op, ": with padding, no final state has what follows the scan");
  const Tensor g = packed(grad_y), nothing = torch::stable::new_empty(p.x, {0});
  check_devices(op, {{"x", p.x}, {"sum", sum}});
  STD_TORCH_CHECK(sum.scalar_type() == p.x.scalar_type() && (!activated || (keep_sum && same_shape(sum, p.x))), op,
                  ": sum must be what ema_scan has kept");
  Tensor argument = packed(sum);
  if (activated) gate.gate.sum = argument.mutable_data_ptr();
  const std::optional<Tensor> gs = packed(grad_state);
  Tensor grad_x = like(p.x), by_decay = like(p.log_decay), by_expansion = like(p.expansion);
  Tensor by_projection = like(p.projection), by_state = like(p.state ? *p.state : nothing);
  Tensor by_omega = like(gate.omega ? *gate.omega : nothing);
  DeviceOf guard(p.x);
  Tensor memory = Cuda::workspace(p, true);
  const CudaCounters counters(p.x, ema_scan_counters(p.shape));
  const EmaCoefficientGradients made{by_decay.mutable_data_ptr<float>(), by_expansion.mutable_data_ptr<float>(),
                                     by_projection.mutable_data_ptr<float>(),
                                     p.state ? by_state.mutable_data_ptr<float>() : nullptr,
                                     omega ? by_omega.mutable_data_ptr<float>() : nullptr, counters.memory};
  check_cuda(op, ema_scan_backward_cuda(
                     p.shape, p.coefficients(), p.inputs(), gate.gate,
                     {g.const_data_ptr(), data_or_null<float>(gs), grad_x.mutable_data_ptr(), nullptr, nullptr}, made,
                     memory.mutable_data_ptr(), current_stream(p.x)));
  return {grad_x, by_decay, by_expansion, by_projection, by_state, by_omega};
}
#endif

template <class Device>
std::tuple<Tensor, Tensor> ema_step(Tensor x, Tensor log_decay, Tensor expansion, Tensor projection,
                                    std::optional<Tensor> omega, std::optional<Tensor> state, bool activated) {
  const char* op = "ema_step";
  STD_TORCH_CHECK(x.dim() == 2, op, ": x must be (B, D)");
  check_devices(op, {{"x", x},
                     {"log_decay", log_decay},
                     {"expansion", expansion},
                     {"projection", projection},
                     {"omega", omega},
                     {"state", state}});
  const Tensor sequence = torch::stable::unsqueeze(x, 1);
  const EmaShape shape = shape_of(sequence, log_decay, expansion, projection, false, false, 0, op);
  check_state(state, shape, op, "state");
  if (omega.has_value()) {
    check_float32(*omega, op, "omega");
    STD_TORCH_CHECK(omega->dim() == 1 && omega->size(0) == shape.width, op, ": omega must be (D,)");
  }
  const Tensor xs = packed(x), l = packed(log_decay), e = packed(expansion), j = packed(projection);
  const std::optional<Tensor> w = packed(omega), s = packed(state);
  Tensor y = torch::stable::empty_like(xs);
  Tensor new_state = torch::stable::new_empty(e, state_size(shape));
  if (shape.batch > 0 && shape.width > 0) {
    Device::step(xs, shape,
                 {l.const_data_ptr<float>(), e.const_data_ptr<float>(), j.const_data_ptr<float>()},
                 {xs.const_data_ptr(), data_or_null<float>(w), data_or_null<float>(s), y.mutable_data_ptr(),
                  new_state.mutable_data_ptr<float>(), activated});
  }
  return {y, new_state};
}

std::tuple<int64_t, int64_t, int64_t, int64_t> division(int64_t batch, int64_t length, int64_t width,
                                                        bool bidirectional, int64_t multiprocessors, bool alone) {
  STD_TORCH_CHECK(batch >= 1 && length >= 1 && width >= 1 && multiprocessors >= 1,
                  "ema_scan_division: sizes must be at least 1");
  EmaShape shape;
  shape.batch = batch;
  shape.length = length;
  shape.width = width;
  shape.bidirectional = bidirectional;
  const EmaDivision found = ema_division(shape, multiprocessors, alone);
  return {found.units, found.tiles, found.tiles_per_segment, found.segments};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "ema_scan_division(int batch, int length, int width, bool bidirectional, int multiprocessors, bool alone) -> "
      "(int units, int tiles, int tiles_per_segment, int segments)");
  m.def(
      "ema_scan(Tensor x, Tensor log_decay, Tensor expansion, Tensor projection, Tensor? state, Tensor? padding_mask, "
      "Tensor? reset_mask, Tensor? omega, Tensor? seed, float p, bool activated, bool keep_sum, bool bidirectional, "
      "bool shift, int truncation) -> (Tensor, Tensor, Tensor)");
  m.def(
      "ema_scan_backward(Tensor grad_y, Tensor? grad_state, Tensor x, Tensor log_decay, Tensor expansion, "
      "Tensor projection, Tensor? state, Tensor? padding_mask, Tensor? reset_mask, bool bidirectional, bool shift, "
      "int truncation) -> (Tensor, Tensor, Tensor)");  // with sums over time, for CPUs
  m.def(
      "ema_scan_gradients(Tensor grad_y, Tensor? grad_state, Tensor sum, Tensor x, Tensor log_decay, Tensor expansion, "
      "Tensor projection, Tensor? state, Tensor? padding_mask, Tensor? reset_mask, Tensor? omega, Tensor? seed, float p, "
      "bool activated, bool keep_sum, bool bidirectional, bool shift, int truncation) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");  // for GPUs
  m.def(
      "ema_step(Tensor x, Tensor log_decay, Tensor expansion, Tensor projection, Tensor? omega, Tensor? state, "
      "bool activated) -> (Tensor, Tensor)");
}

FM_LIBRARY_IMPL_(FM_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("ema_scan_division", TORCH_BOX(&fm::division));
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("ema_scan", TORCH_BOX(&fm::ema_scan<fm::Cpu>));
  m.impl("ema_scan_backward", TORCH_BOX(&fm::ema_scan_backward));
  m.impl("ema_step", TORCH_BOX(&fm::ema_step<fm::Cpu>));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("ema_scan", TORCH_BOX(&fm::ema_scan<fm::Cuda>));
  m.impl("ema_scan_gradients", TORCH_BOX(&fm::ema_scan_gradients));
  m.impl("ema_step", TORCH_BOX(&fm::ema_step<fm::Cuda>));
}
#endif
