// Operators of a step of MEGALODON on the CPU: shapes and memory; see megalodon_step.h.
#include "decoding/megalodon_step.h"

#include "decoding/arguments.h"
#include "packed_linear/operator.h"

#if defined(FM_LIBRARY_CPU)
namespace fm {
namespace {

const char* const kOp = "normalized_attention_step";

// Statistics of a timestep norm: count, mean, variance.
using Statistics = std::tuple<Tensor, Tensor, Tensor>;

// The step x (B, D) normalised to y; returns the statistics with it.
Statistics normalize(const char* op, const float* x, int64_t batch, int64_t d, const std::optional<Tensor>& scale,
                     const std::optional<Tensor>& shift, const Tensor& count, const Tensor& mean,
                     const Tensor& variance, float* y) {
  STD_TORCH_CHECK(mean.dim() == 2 && mean.size(1) > 0 && d % mean.size(1) == 0, op,
                  ": x must be (B, D), mean (B, G) with G a divisor of D");
  const int64_t groups = mean.size(1);
  STD_TORCH_CHECK(count.scalar_type() == ScalarType::Long && count.dim() == 1 && count.size(0) == batch, op,
                  ": count must be (B,) in int64");
  for (const Tensor& t : {mean, variance})
    STD_TORCH_CHECK(t.scalar_type() == ScalarType::Double && t.dim() == 2 && t.size(0) == batch && t.size(1) == groups,
                    op, ": mean and variance must be (B, G) in float64");
  const Tensor counts = packed(count), means = packed(mean), variances = packed(variance);
  Tensor new_count = torch::stable::new_empty(count, {batch});
  Tensor new_mean = torch::stable::new_empty(mean, {batch, groups});
  Tensor new_variance = torch::stable::new_empty(mean, {batch, groups});
  const TimestepNormStep step{x,
                              data(scale, {d}, "the norm's scale"),
                              data(shift, {d}, "the norm's shift"),
                              counts.const_data_ptr<int64_t>(),
                              means.const_data_ptr<double>(),
                              variances.const_data_ptr<double>(),
                              y,
                              new_count.mutable_data_ptr<int64_t>(),
                              new_mean.mutable_data_ptr<double>(),
                              new_variance.mutable_data_ptr<double>(),
                              d,
                              groups};
  run_step([&](int64_t begin, int64_t end) { timestep_norm_step_cpu(step, begin, end); }, batch, d);
  return {new_count, new_mean, new_variance};
}

// The average (B, D) to y; returns the new state.
Tensor complex_average(const float* x, int64_t batch, const Tensor& decay, const Tensor& expansion,
                       const Tensor& projection, const Tensor& omega, const std::optional<Tensor>& norm_scale, bool rms,
                       const std::optional<Tensor>& state, float* y) {
  const int64_t d = expansion.size(0), n = expansion.size(1);
  STD_TORCH_CHECK(decay.scalar_type() == ScalarType::Double && decay.is_contiguous() && decay.numel() == 2 * d * n, kOp,
                  ": decay must be (D, N, 2) in float64 and contiguous");
  const std::optional<Tensor> ss = packed(state);
  Tensor new_state = torch::stable::new_empty(expansion, {batch, d, n, 2});
  const ComplexAverageStep step{x, data(ss, {batch, d, n, 2}, "state"),
                                decay.const_data_ptr<double>(), data(expansion, {d, n}, "expansion"),
                                data(projection, {d, n, 2}, "projection"), data(omega, {d}, "omega"),
                                data(norm_scale, {d}, "norm_scale"), y,
                                new_state.mutable_data_ptr<float>(), d, n, rms};
  run_step([&](int64_t begin, int64_t end) { complex_average_step_cpu(step, begin, end); }, batch, d * n);
  return new_state;
}

// From gates (B, gates_width) and value (B, v) to y (B, v).
void attend(const float* gates, int64_t gates_width, const float* value, int64_t batch, const Tensor& scale,
            const Tensor& offset, const Tensor& turns, Tensor& keys, Tensor& values, int64_t past, float* y) {
  STD_TORCH_CHECK(scale.dim() == 3 && turns.dim() == 3, kOp, ": scale must be (2, H, E), turns (reach, E / 2, 2)");
  const int64_t room = keys.size(1), z = keys.size(2), v = values.size(2);
  const int64_t heads = scale.size(1), reach = turns.size(0);
  STD_TORCH_CHECK(heads > 0 && z % (2 * heads) == 0 && v % heads == 0, kOp, ": ", heads, " heads do not divide z and v");
  STD_TORCH_CHECK(past >= 0 && past < room && past < reach, kOp, ": no room for step ", past, " in ", room);
  data(keys, {batch, room, z}, "keys");
  data(values, {batch, room, v}, "values");
  const int64_t half = z / heads / 2;
  const NormalizedAttentionStep step{gates, value,
                                     data(scale, {2, heads, z / heads}, "scale"),
                                     data(offset, {2, heads, z / heads}, "offset"),
                                     data(turns, {reach, half, 2}, "turns") + past * 2 * half,
                                     keys.mutable_data_ptr<float>(), values.mutable_data_ptr<float>(),
                                     y, gates_width, z, v, heads, room, past};
  run_step([&](int64_t begin, int64_t end) { normalized_attention_step_cpu(step, begin, end); }, batch,
           (past + 1) * (z + v));
}

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
  STD_TORCH_CHECK(x.dim() == 2, op, ": x must be (B, D), mean (B, G) with G a divisor of D");
  const int64_t batch = x.size(0), d = x.size(1);
  const Tensor xs = packed(x);
  Tensor y = torch::stable::new_empty(x, {batch, d});
  const auto [new_count, new_mean, new_variance] = normalize(op, data(xs, {batch, d}, "x"), batch, d, scale, shift,
                                                             count, mean, variance, y.mutable_data_ptr<float>());
  return {y, new_count, new_mean, new_variance};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> normalized_attention_step(
    Tensor x, std::optional<Tensor> norm_scale, std::optional<Tensor> norm_shift, Tensor count, Tensor mean,
    Tensor variance, Tensor value_weight, std::optional<Tensor> value_scale, std::optional<Tensor> value_bias,
    Tensor gate_weight, std::optional<Tensor> gate_scale, std::optional<Tensor> gate_bias, Tensor output_weight,
    std::optional<Tensor> output_scale, std::optional<Tensor> output_bias, Tensor scale, Tensor offset, Tensor turns,
    Tensor decay, Tensor expansion, Tensor projection, Tensor omega, std::optional<Tensor> ema_scale, bool rms,
    std::optional<Tensor> state, Tensor keys, Tensor values, int64_t past) {
  check_devices(kOp, {{"x", x},
                      {"norm_scale", norm_scale},
                      {"norm_shift", norm_shift},
                      {"the state's count", count},
                      {"the state's mean", mean},
                      {"the state's variance", variance},
                      {"value_weight", value_weight},
                      {"value_scale", value_scale},
                      {"value_bias", value_bias},
                      {"gate_weight", gate_weight},
                      {"gate_scale", gate_scale},
                      {"gate_bias", gate_bias},
                      {"output_weight", output_weight},
                      {"output_scale", output_scale},
                      {"output_bias", output_bias},
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
  STD_TORCH_CHECK(x.dim() == 2 && expansion.dim() == 2 && keys.dim() == 3 && values.dim() == 3, kOp,
                  ": x must be (B, D), expansion (D, N), keys (B, room, z), values (B, room, v)");
  const int64_t batch = x.size(0), d = x.size(1), v = values.size(2), width = keys.size(2) + v + d;
  STD_TORCH_CHECK(value_weight.size(0) == v && gate_weight.size(0) == width && output_weight.size(0) == d &&
                      expansion.size(0) == d,
                  kOp, ": the linear maps must have v, z + v + D and D outputs, expansion D rows");
  const Tensor xs = packed(x);
  const float* residual = data(xs, {batch, d}, "x");
  Tensor out = torch::stable::new_empty(x, {batch, d});
  Scratch scratch;
  float *normed = scratch.take(batch * d), *value = scratch.take(batch * v), *average = scratch.take(batch * d);
  float *gates = scratch.take(batch * width), *attended = scratch.take(batch * v);
  const auto [new_count, new_mean, new_variance] =
      normalize(kOp, residual, batch, d, norm_scale, norm_shift, count, mean, variance, normed);
  packed_linear({normed, batch, d}, value_weight, value_scale, value_bias, value);
  Tensor new_state =
      complex_average(normed, batch, decay, expansion, projection, omega, ema_scale, rms, state, average);
  packed_linear({average, batch, d}, gate_weight, gate_scale, gate_bias, gates);
  attend(gates, width, value, batch, scale, offset, turns, keys, values, past, attended);
  packed_linear({attended, batch, v}, output_weight, output_scale, output_bias, out.mutable_data_ptr<float>());
  const CandidateStep step{residual, gates, out.mutable_data_ptr<float>(), d, width};
  run_step([&](int64_t begin, int64_t end) { candidate_step_cpu(step, begin, end); }, batch, d);
  return {out, new_state, new_count, new_mean, new_variance};
}

// Places of a layer's tensors in the list of all layers.
enum NormalizedLayer {
  kNormScale, kNormShift, kValue, kGates = kValue + 3, kOutput = kGates + 3, kScale = kOutput + 3, kOffset, kDecay,
  kExpansion, kProjection, kOmega, kEmaScale, kInnerNormScale, kInnerNormShift, kInner, kOuter = kInner + 3,
  kLayerScale = kOuter + 3, kTensors
};

using Tensors = std::vector<Tensor>;

// The layers one after the other; each is normalized_attention_step and feed_forward_step.
std::tuple<Tensor, Tensors, Tensors, Tensors, Tensors> normalized_layers_step(
    Tensor x, std::vector<std::optional<Tensor>> weights, Tensors counts, Tensors means, Tensors variances,
    Tensor turns, bool rms, bool two_hops, std::vector<std::optional<Tensor>> states, Tensors keys, Tensors values,
    int64_t past) {
  const char* op = "normalized_layers_step";
  const size_t layers = states.size();
  STD_TORCH_CHECK(weights.size() == layers * kTensors, op, ": ", layers, " states and ", weights.size(), " weights, ",
                  static_cast<int>(kTensors), " of each layer");
  for (const Tensors* some : {&counts, &means, &variances, &keys, &values})
    STD_TORCH_CHECK(some->size() == layers, op, ": ", layers, " states beside ", some->size(), " other tensors");
  Tensors new_states, new_counts, new_means, new_variances;
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::optional<Tensor>* w = weights.data() + layer * kTensors;
    check_present(op, w, {kValue, kGates, kOutput, kScale, kOffset, kDecay, kExpansion, kProjection, kOmega, kInner,
                          kOuter});
    auto [hidden, state, count, mean, variance] = normalized_attention_step(
        x, w[kNormScale], w[kNormShift], counts[layer], means[layer], variances[layer], *w[kValue], w[kValue + 1],
        w[kValue + 2], *w[kGates], w[kGates + 1], w[kGates + 2], *w[kOutput], w[kOutput + 1], w[kOutput + 2], *w[kScale],
        *w[kOffset], turns, *w[kDecay], *w[kExpansion], *w[kProjection], *w[kOmega], w[kEmaScale], rms, states[layer],
        keys[layer], values[layer], past);
    x = feed_forward_step(hidden, two_hops ? x : hidden, true, w[kInnerNormScale], w[kInnerNormShift], *w[kInner],
                          w[kInner + 1], w[kInner + 2], *w[kOuter], w[kOuter + 1], w[kOuter + 2], w[kLayerScale]);
    new_states.push_back(state);
    new_counts.push_back(count);
    new_means.push_back(mean);
    new_variances.push_back(variance);
  }
  return {x, new_states, new_counts, new_means, new_variances};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "normalized_layers_step(Tensor x, Tensor?[] weights, Tensor[] counts, Tensor[] means, Tensor[] variances, "
      "Tensor turns, bool rms, bool two_hops, Tensor?[] states, Tensor(a!)[] keys, Tensor(b!)[] values, int past) -> "
      "(Tensor, Tensor[], Tensor[], Tensor[], Tensor[])");
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
  m.impl("normalized_layers_step", TORCH_BOX(&fm::normalized_layers_step));
}
#endif
