// Operator of a step of MEGALODON's attention on the CPU: shapes and memory; see megalodon_step.h.
#include "decode_step/megalodon_step.h"

#include "decode_step/arguments.h"
#include "packed_linear/operator.h"

#if defined(FM_LIBRARY_CPU)
namespace fm {
namespace {

const char* const kOp = "normalized_attention_step";

std::tuple<Tensor, Tensor> complex_average(const Tensor& x, const Tensor& decay, const Tensor& expansion,
                                           const Tensor& projection, const Tensor& omega,
                                           const std::optional<Tensor>& norm_scale, bool rms,
                                           const std::optional<Tensor>& state) {
  const int64_t batch = x.size(0), d = x.size(1), n = expansion.size(1);
  STD_TORCH_CHECK(decay.scalar_type() == ScalarType::Double && decay.is_contiguous() && decay.numel() == 2 * d * n, kOp,
                  ": decay must be (D, N, 2) in float64 and contiguous");
  const Tensor xs = packed(x);
  const std::optional<Tensor> ss = packed(state);
  Tensor y = torch::stable::new_empty(x, {batch, d}), new_state = torch::stable::new_empty(x, {batch, d, n, 2});
  const ComplexAverageStep step{data(xs, {batch, d}, "x"), data(ss, {batch, d, n, 2}, "state"),
                                decay.const_data_ptr<double>(), data(expansion, {d, n}, "expansion"),
                                data(projection, {d, n, 2}, "projection"), data(omega, {d}, "omega"),
                                data(norm_scale, {d}, "norm_scale"), y.mutable_data_ptr<float>(),
                                new_state.mutable_data_ptr<float>(), d, n, rms};
  run_step([&](int64_t begin, int64_t end) { complex_average_step_cpu(step, begin, end); }, batch, d * n);
  return {y, new_state};
}

Tensor attend(const Tensor& gates, const Tensor& value, const Tensor& scale, const Tensor& offset, const Tensor& turns,
              Tensor& keys, Tensor& values, int64_t past) {
  STD_TORCH_CHECK(scale.dim() == 3 && turns.dim() == 3, kOp, ": scale must be (2, H, E), turns (reach, E / 2, 2)");
  const int64_t batch = gates.size(0), room = keys.size(1), z = keys.size(2), v = values.size(2);
  const int64_t heads = scale.size(1), reach = turns.size(0);
  STD_TORCH_CHECK(heads > 0 && z % (2 * heads) == 0 && v % heads == 0, kOp, ": ", heads, " heads do not divide z and v");
  STD_TORCH_CHECK(past >= 0 && past < room && past < reach, kOp, ": no room for step ", past, " in ", room);
  data(keys, {batch, room, z}, "keys");
  data(values, {batch, room, v}, "values");
  const int64_t half = z / heads / 2;
  Tensor y = torch::stable::new_empty(value, {batch, v});
  const NormalizedAttentionStep step{data(gates, {batch, gates.size(1)}, "gates"), data(value, {batch, v}, "value"),
                                     data(scale, {2, heads, z / heads}, "scale"),
                                     data(offset, {2, heads, z / heads}, "offset"),
                                     data(turns, {reach, half, 2}, "turns") + past * 2 * half,
                                     keys.mutable_data_ptr<float>(), values.mutable_data_ptr<float>(),
                                     y.mutable_data_ptr<float>(), gates.size(1), z, v, heads, room, past};
  run_step([&](int64_t begin, int64_t end) { normalized_attention_step_cpu(step, begin, end); }, batch,
           (past + 1) * (z + v));
  return y;
}

std::tuple<Tensor, Tensor> normalized_attention_step(
    Tensor x, Tensor residual, Tensor value_weight, std::optional<Tensor> value_scale, std::optional<Tensor> value_bias,
    Tensor gate_weight, std::optional<Tensor> gate_scale, std::optional<Tensor> gate_bias, Tensor output_weight,
    std::optional<Tensor> output_scale, std::optional<Tensor> output_bias, Tensor scale, Tensor offset, Tensor turns,
    Tensor decay, Tensor expansion, Tensor projection, Tensor omega, std::optional<Tensor> norm_scale, bool rms,
    std::optional<Tensor> state, Tensor keys, Tensor values, int64_t past) {
  STD_TORCH_CHECK(x.dim() == 2 && expansion.dim() == 2, kOp, ": x must be (B, D), expansion (D, N)");
  check_devices(kOp, {{"x", x},
                      {"residual", residual},
                      {"scale", scale},
                      {"offset", offset},
                      {"turns", turns},
                      {"decay", decay},
                      {"expansion", expansion},
                      {"projection", projection},
                      {"omega", omega},
                      {"norm_scale", norm_scale},
                      {"state", state},
                      {"keys", keys},
                      {"values", values}});
  const Tensor value = packed_linear(x, value_weight, value_scale, value_bias);
  const auto [average, new_state] = complex_average(x, decay, expansion, projection, omega, norm_scale, rms, state);
  const Tensor gates = packed_linear(average, gate_weight, gate_scale, gate_bias);
  const int64_t batch = x.size(0), d = x.size(1), gates_width = gates.size(1);
  STD_TORCH_CHECK(keys.dim() == 3 && values.dim() == 3 && gates_width == keys.size(2) + values.size(2) + d, kOp,
                  ": gates must be (B, z + v + D), keys (B, room, z), values (B, room, v)");
  const Tensor attended = attend(gates, value, scale, offset, turns, keys, values, past);
  Tensor out = packed_linear(attended, output_weight, output_scale, output_bias);
  const Tensor rs = packed(residual);
  const CandidateStep step{data(rs, {batch, d}, "residual"), data(gates, {batch, gates_width}, "gates"),
                           out.mutable_data_ptr<float>(), d, gates_width};
  data(out, {batch, d}, "output");
  run_step([&](int64_t begin, int64_t end) { candidate_step_cpu(step, begin, end); }, batch, d);
  return {out, new_state};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "normalized_attention_step(Tensor x, Tensor residual, Tensor value_weight, Tensor? value_scale, "
      "Tensor? value_bias, Tensor gate_weight, Tensor? gate_scale, Tensor? gate_bias, Tensor output_weight, "
      "Tensor? output_scale, Tensor? output_bias, Tensor scale, Tensor offset, Tensor turns, Tensor decay, "
      "Tensor expansion, Tensor projection, Tensor omega, Tensor? norm_scale, bool rms, Tensor? state, "
      "Tensor(a!) keys, Tensor(b!) values, int past) -> (Tensor, Tensor)");
}

FM_LIBRARY_CPU(m) { m.impl("normalized_attention_step", TORCH_BOX(&fm::normalized_attention_step)); }
#endif
