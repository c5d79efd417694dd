// Operators of a step of MEGALODON on the CPU: shapes and memory; see megalodon_step.h.
#include "decoding/megalodon_step.h"

#include "decoding/arguments.h"
#include "packed_linear/operator.h"

#if defined(FM_LIBRARY_CPU)
namespace fm {
namespace {

const char* const kOp = "normalized_attention_step";

// The step x (B, D) normalised, and the statistics with it: count, mean, variance.
std::tuple<Tensor, Tensor, Tensor, Tensor> timestep_norm_step(Tensor x, std::optional<Tensor> scale,
                                                              std::optional<Tensor> shift, Tensor count, Tensor mean,
                                                              Tensor variance) {
  const char* op = "timestep_norm_step";
  check_devices(op, {{"x", x},
                     {"scale", scale},
                     {"shift", shift},
                     {"the state's count", count},
                     {"the state's mean", mean},
                     {"the state's variance", variance}});
  STD_TORCH_CHECK(x.dim() == 2 && mean.dim() == 2 && mean.size(1) > 0 && x.size(1) % mean.size(1) == 0, op,
                  ": x must be (B, D), mean (B, G) with G a divisor of D");
  const int64_t batch = x.size(0), d = x.size(1), groups = mean.size(1);
  STD_TORCH_CHECK(count.scalar_type() == ScalarType::Long && count.dim() == 1 && count.size(0) == batch, op,
                  ": count must be (B,) in int64");
  for (const Tensor& t : {mean, variance})
    STD_TORCH_CHECK(t.scalar_type() == ScalarType::Double && t.dim() == 2 && t.size(0) == batch && t.size(1) == groups,
                    op, ": mean and variance must be (B, G) in float64");
  const Tensor xs = packed(x), counts = packed(count), means = packed(mean), variances = packed(variance);
  Tensor y = torch::stable::new_empty(x, {batch, d}), new_count = torch::stable::new_empty(count, {batch});
  Tensor new_mean = torch::stable::new_empty(mean, {batch, groups});
  Tensor new_variance = torch::stable::new_empty(mean, {batch, groups});
  const TimestepNormStep step{data(xs, {batch, d}, "x"),
                              data(scale, {d}, "the norm's scale"),
                              data(shift, {d}, "the norm's shift"),
                              counts.const_data_ptr<int64_t>(),
                              means.const_data_ptr<double>(),
                              variances.const_data_ptr<double>(),
                              y.mutable_data_ptr<float>(),
                              new_count.mutable_data_ptr<int64_t>(),
                              new_mean.mutable_data_ptr<double>(),
                              new_variance.mutable_data_ptr<double>(),
                              d,
                              groups};
  run_step([&](int64_t begin, int64_t end) { timestep_norm_step_cpu(step, begin, end); }, batch, d);
  return {y, new_count, new_mean, new_variance};
}

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

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> normalized_attention_step(
    Tensor x, std::optional<Tensor> norm_scale, std::optional<Tensor> norm_shift, Tensor count, Tensor mean,
    Tensor variance, Tensor value_weight, std::optional<Tensor> value_scale, std::optional<Tensor> value_bias,
    Tensor gate_weight, std::optional<Tensor> gate_scale, std::optional<Tensor> gate_bias, Tensor output_weight,
    std::optional<Tensor> output_scale, std::optional<Tensor> output_bias, Tensor scale, Tensor offset, Tensor turns,
    Tensor decay, Tensor expansion, Tensor projection, Tensor omega, std::optional<Tensor> ema_scale, bool rms,
    std::optional<Tensor> state, Tensor keys, Tensor values, int64_t past) {
  STD_TORCH_CHECK(x.dim() == 2 && expansion.dim() == 2, kOp, ": x must be (B, D), expansion (D, N)");
  check_devices(kOp, {{"x", x},
                      {"scale", scale},
                      {"offset", offset},
                      {"turns", turns},
                      {"decay", decay},
                      {"expansion", expansion},
                      {"projection", projection},
                      {"omega", omega},
                      {"ema_scale", ema_scale},
                      {"state", state},
                      {"keys", keys},
                      {"values", values}});
  const auto [normed, new_count, new_mean, new_variance] =
      timestep_norm_step(x, norm_scale, norm_shift, count, mean, variance);
  const Tensor value = packed_linear(normed, value_weight, value_scale, value_bias);
  const auto [average, new_state] = complex_average(normed, decay, expansion, projection, omega, ema_scale, rms, state);
  const Tensor gates = packed_linear(average, gate_weight, gate_scale, gate_bias);
  const int64_t batch = x.size(0), d = x.size(1), gates_width = gates.size(1);
  STD_TORCH_CHECK(keys.dim() == 3 && values.dim() == 3 && gates_width == keys.size(2) + values.size(2) + d, kOp,
                  ": gates must be (B, z + v + D), keys (B, room, z), values (B, room, v)");
  const Tensor attended = attend(gates, value, scale, offset, turns, keys, values, past);
  Tensor out = packed_linear(attended, output_weight, output_scale, output_bias);
  const Tensor rs = packed(x);
  const CandidateStep step{data(rs, {batch, d}, "x"), data(gates, {batch, gates_width}, "gates"),
                           out.mutable_data_ptr<float>(), d, gates_width};
  data(out, {batch, d}, "output");
  run_step([&](int64_t begin, int64_t end) { candidate_step_cpu(step, begin, end); }, batch, d);
  return {out, new_state, new_count, new_mean, new_variance};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "normalized_attention_step(Tensor x, Tensor? norm_scale, Tensor? norm_shift, Tensor count, Tensor mean, "
      "Tensor variance, Tensor value_weight, Tensor? value_scale, Tensor? value_bias, Tensor gate_weight, "
      "Tensor? gate_scale, Tensor? gate_bias, Tensor output_weight, Tensor? output_scale, Tensor? output_bias, "
      "Tensor scale, Tensor offset, Tensor turns, Tensor decay, Tensor expansion, Tensor projection, Tensor omega, "
      "Tensor? ema_scale, bool rms, Tensor? state, Tensor(a!) keys, Tensor(b!) values, int past) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "timestep_norm_step(Tensor x, Tensor? scale, Tensor? shift, Tensor count, Tensor mean, Tensor variance) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
}

FM_LIBRARY_CPU(m) {
  m.impl("normalized_attention_step", TORCH_BOX(&fm::normalized_attention_step));
  m.impl("timestep_norm_step", TORCH_BOX(&fm::timestep_norm_step));
}
#endif
