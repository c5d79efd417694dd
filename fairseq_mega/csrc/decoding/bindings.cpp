// Operators of decoding on the CPU: shapes and memory; see decoding.h.
#include "decoding/decoding.h"

#include "decoding/arguments.h"
#include "packed_linear/operator.h"

#if defined(FM_LIBRARY_CPU)
namespace fm {
namespace {

// The layer norm of rows (B, D), in the memory of the step.
const float* layer_norm(const float* x, int64_t batch, int64_t d, const std::optional<Tensor>& scale,
                        const std::optional<Tensor>& shift, Scratch& scratch) {
  float* y = scratch.take(batch * d);
  const LayerNormStep step{x, data(scale, {d}, "norm_scale"), data(shift, {d}, "norm_shift"), y, d};
  run_step([&](int64_t begin, int64_t end) { layer_norm_step_cpu(step, begin, end); }, batch, d);
  return y;
}

// The average (B, D) to y; returns the new state.
Tensor average(const float* x, int64_t batch, const Tensor& decay_high, const Tensor& decay_low,
               const Tensor& expansion, const Tensor& projection, const Tensor& omega,
               const std::optional<Tensor>& state, float* y) {
  STD_TORCH_CHECK(expansion.dim() == 2, "average_step: expansion must be (D, N)");
  const int64_t d = expansion.size(0), n = expansion.size(1);
  const std::optional<Tensor> ss = packed(state);
  Tensor new_state = torch::stable::new_empty(expansion, {batch, d, n});
  const AverageStep step{x, data(ss, {batch, d, n}, "state"),
                         data(decay_high, {d, n}, "decay"), data(decay_low, {d, n}, "decay"),
                         data(expansion, {d, n}, "expansion"), data(projection, {d, n}, "projection"),
                         data(omega, {d}, "omega"), y, new_state.mutable_data_ptr<float>(),
                         d, n};
  run_step([&](int64_t begin, int64_t end) { average_step_cpu(step, begin, end); }, batch * d, n);
  return new_state;
}

// From gates (B, 2 D + z + v) and value (B, v) to y (B, v).
void attend(const char* op, const float* gates, const float* value, int64_t batch, int64_t d, const Tensor& kappa,
            const Tensor& mu, const Tensor& bias, Tensor& keys, Tensor& values, int64_t past, int64_t function,
            float* y) {
  const int64_t room = keys.size(1), z = keys.size(2), v = values.size(2);
  STD_TORCH_CHECK(function >= 0 && function <= 2, op, ": unknown attention function ", function);
  STD_TORCH_CHECK(past >= 0 && past < room, op, ": no room for step ", past, " in ", room);
  data(keys, {batch, room, z}, "keys");
  data(values, {batch, room, v}, "values");
  const Tensor bs = packed(bias);
  const AttentionStep step{gates, value, data(kappa, {2, z}, "kappa"), data(mu, {2, z}, "mu"),
                           data(bs, {past + 1}, "bias"), keys.mutable_data_ptr<float>(),
                           values.mutable_data_ptr<float>(), y, d, z, v, room, past,
                           static_cast<AttentionFunction>(function)};
  run_step([&](int64_t begin, int64_t end) { attention_step_cpu(step, begin, end); }, batch, (past + 1) * (z + v));
}

void mix(const MixStep& step, int64_t batch) {
  run_step([&](int64_t begin, int64_t end) { mix_step_cpu(step, begin, end); }, batch, step.width);
}

std::tuple<Tensor, Tensor> average_step(Tensor x, Tensor decay_high, Tensor decay_low, Tensor expansion,
                                        Tensor projection, Tensor omega, std::optional<Tensor> state) {
  STD_TORCH_CHECK(x.dim() == 2 && expansion.dim() == 2, "average_step: x must be (B, D), expansion (D, N)");
  check_devices("average_step", {{"x", x},
                                 {"decay_high", decay_high},
                                 {"decay_low", decay_low},
                                 {"expansion", expansion},
                                 {"projection", projection},
                                 {"omega", omega},
                                 {"state", state}});
  const int64_t batch = x.size(0), d = expansion.size(0);
  const Tensor xs = packed(x);
  Tensor y = torch::stable::new_empty(x, {batch, d});
  Tensor new_state = average(data(xs, {batch, d}, "x"), batch, decay_high, decay_low, expansion, projection, omega,
                             state, y.mutable_data_ptr<float>());
  return {y, new_state};
}

Tensor attention_step(Tensor gates, Tensor value, Tensor kappa, Tensor mu, Tensor bias, Tensor keys, Tensor values,
                      int64_t past, int64_t function) {
  const char* op = "attention_step";
  STD_TORCH_CHECK(gates.dim() == 2 && keys.dim() == 3 && values.dim() == 3, op,
                  ": gates must be (B, 2 D + z + v), keys (B, room, z), values (B, room, v)");
  check_devices(op, {{"gates", gates},
                     {"value", value},
                     {"kappa", kappa},
                     {"mu", mu},
                     {"bias", bias},
                     {"keys", keys},
                     {"values", values}});
  const int64_t batch = gates.size(0), z = keys.size(2), v = values.size(2), d = (gates.size(1) - z - v) / 2;
  const Tensor gs = packed(gates), vs = packed(value);
  Tensor y = torch::stable::new_empty(value, {batch, v});
  attend(op, data(gs, {batch, 2 * d + z + v}, "gates"), data(vs, {batch, v}, "value"), batch, d, kappa, mu, bias, keys,
         values, past, function, y.mutable_data_ptr<float>());
  return y;
}

Tensor mix_step(Tensor residual, Tensor gates, Tensor projected) {
  STD_TORCH_CHECK(residual.dim() == 2 && gates.dim() == 2, "mix_step: residual must be (B, D), gates (B, width)");
  check_devices("mix_step", {{"residual", residual}, {"gates", gates}, {"projected", projected}});
  const int64_t batch = residual.size(0), d = residual.size(1), width = gates.size(1);
  STD_TORCH_CHECK(width >= 2 * d, "mix_step: gates must hold the update and the candidate");
  const Tensor rs = packed(residual), gs = packed(gates), ps = packed(projected);
  Tensor out = torch::stable::new_empty(residual, {batch, d});
  mix({data(rs, {batch, d}, "residual"), data(gs, {batch, width}, "gates"), data(ps, {batch, d}, "projected"),
       out.mutable_data_ptr<float>(), d, width},
      batch);
  return out;
}

std::tuple<Tensor, Tensor> gated_attention_step(
    Tensor x, Tensor residual, bool norm, std::optional<Tensor> norm_scale, std::optional<Tensor> norm_shift,
    Tensor value_weight, std::optional<Tensor> value_scale, std::optional<Tensor> value_bias, Tensor gate_weight,
    std::optional<Tensor> gate_scale, std::optional<Tensor> gate_bias, Tensor output_weight,
    std::optional<Tensor> output_scale, std::optional<Tensor> output_bias, Tensor kappa, Tensor mu, Tensor decay_high,
    Tensor decay_low, Tensor expansion, Tensor projection, Tensor omega, std::optional<Tensor> state, Tensor bias,
    Tensor keys, Tensor values, int64_t past, int64_t function) {
  const char* op = "gated_attention_step";
  check_devices(op, {{"x", x},
                     {"residual", residual},
                     {"norm_scale", norm_scale},
                     {"norm_shift", norm_shift},
                     {"value_weight", value_weight},
                     {"value_scale", value_scale},
                     {"value_bias", value_bias},
                     {"gate_weight", gate_weight},
                     {"gate_scale", gate_scale},
                     {"gate_bias", gate_bias},
                     {"output_weight", output_weight},
                     {"output_scale", output_scale},
                     {"output_bias", output_bias},
                     {"kappa", kappa},
                     {"mu", mu},
                     {"decay_high", decay_high},
                     {"decay_low", decay_low},
                     {"expansion", expansion},
                     {"projection", projection},
                     {"omega", omega},
                     {"state", state},
                     {"bias", bias},
                     {"keys", keys},
                     {"values", values}});
  STD_TORCH_CHECK(x.dim() == 2 && x.size(1) > 0 && keys.dim() == 3 && values.dim() == 3, op,
                  ": x must be (B, D), keys (B, room, z), values (B, room, v)");
  const int64_t batch = x.size(0), d = x.size(1), v = values.size(2), width = 2 * d + keys.size(2) + v;
  STD_TORCH_CHECK(value_weight.size(0) == v && gate_weight.size(0) == width && output_weight.size(0) == d &&
                      expansion.size(0) == d,
                  op, ": the linear maps must have v, 2 D + z + v and D outputs, expansion D rows");
  const Tensor xs = packed(x), rs = packed(residual);
  Tensor out = torch::stable::new_empty(x, {batch, d});
  Scratch scratch;
  const float* normed = data(xs, {batch, d}, "x");
  if (norm) normed = layer_norm(normed, batch, d, norm_scale, norm_shift, scratch);
  float *value = scratch.take(batch * v), *averaged = scratch.take(batch * d), *gates = scratch.take(batch * width);
  float *attended = scratch.take(batch * v), *projected = scratch.take(batch * d);
  packed_linear({normed, batch, d}, value_weight, value_scale, value_bias, value);
  Tensor new_state =
      average(normed, batch, decay_high, decay_low, expansion, projection, omega, state, averaged);
  packed_linear({averaged, batch, d}, gate_weight, gate_scale, gate_bias, gates);
  attend(op, gates, value, batch, d, kappa, mu, bias, keys, values, past, function, attended);
  packed_linear({attended, batch, v}, output_weight, output_scale, output_bias, projected);
  mix({data(rs, {batch, d}, "residual"), gates, projected, out.mutable_data_ptr<float>(), d, width}, batch);
  return {out, new_state};
}

}  // namespace

Tensor feed_forward_step(Tensor x, Tensor residual, bool norm, std::optional<Tensor> norm_scale,
                         std::optional<Tensor> norm_shift, Tensor input_weight, std::optional<Tensor> input_scale,
                         std::optional<Tensor> input_bias, Tensor output_weight, std::optional<Tensor> output_scale,
                         std::optional<Tensor> output_bias, std::optional<Tensor> layer_scale) {
  const char* op = "feed_forward_step";
  check_devices(op, {{"x", x},
                     {"residual", residual},
                     {"norm_scale", norm_scale},
                     {"norm_shift", norm_shift},
                     {"input_weight", input_weight},
                     {"input_scale", input_scale},
                     {"input_bias", input_bias},
                     {"output_weight", output_weight},
                     {"output_scale", output_scale},
                     {"output_bias", output_bias},
                     {"layer_scale", layer_scale}});
  STD_TORCH_CHECK(x.dim() == 2 && x.size(1) > 0 && input_weight.dim() == 2 && output_weight.dim() == 2, op,
                  ": x must be (B, D), the weights matrices");
  const int64_t batch = x.size(0), width = output_weight.size(1), inner_width = input_weight.size(0);
  STD_TORCH_CHECK(inner_width == width || inner_width == 2 * width, op, ": the inner widths ", inner_width, " and ",
                  width, " do not fit");
  const int64_t inputs = x.size(1), d = output_weight.size(0);
  const Tensor xs = packed(x), rs = packed(residual);
  Tensor out = torch::stable::new_empty(x, {batch, d});
  Scratch scratch;
  const float* normed = data(xs, {batch, inputs}, "x");
  if (norm) normed = layer_norm(normed, batch, inputs, norm_scale, norm_shift, scratch);
  float *inner = scratch.take(batch * inner_width), *activated = scratch.take(batch * width);
  packed_linear({normed, batch, inputs}, input_weight, input_scale, input_bias, inner);
  const InnerStep step{inner, activated, width, inner_width != width};
  run_step([&](int64_t begin, int64_t end) { inner_step_cpu(step, begin, end); }, batch, width);
  packed_linear({activated, batch, width}, output_weight, output_scale, output_bias, out.mutable_data_ptr<float>());
  const AddStep add{data(rs, {batch, d}, "residual"), data(layer_scale, {d}, "layer_scale"),
                    out.mutable_data_ptr<float>(), d};
  run_step([&](int64_t begin, int64_t end) { add_step_cpu(add, begin, end); }, batch, d);
  return out;
}

namespace {

// Places of a layer's tensors in the list of all layers.
enum GatedLayer {
  kNormScale, kNormShift, kValue, kGates = kValue + 3, kOutput = kGates + 3, kKappa = kOutput + 3, kMu, kDecayHigh,
  kDecayLow, kExpansion, kProjection, kOmega, kTable, kInnerNormScale, kInnerNormShift, kInner,
  kOuter = kInner + 3, kTensors = kOuter + 3
};

// The layers one after the other; each is gated_attention_step and feed_forward_step, with their norms.
std::tuple<Tensor, std::vector<Tensor>> gated_layers_step(Tensor x, std::vector<std::optional<Tensor>> weights,
                                                          std::vector<std::optional<Tensor>> states,
                                                          std::vector<Tensor> keys, std::vector<Tensor> values,
                                                          int64_t first, int64_t past, int64_t function) {
  const size_t layers = states.size();
  STD_TORCH_CHECK(weights.size() == layers * kTensors && keys.size() == layers && values.size() == layers,
                  "gated_layers_step: ", layers, " states, ", keys.size(), " keys, ", values.size(), " values and ",
                  weights.size(), " weights, ", static_cast<int>(kTensors), " of each layer");
  std::vector<Tensor> new_states;
  new_states.reserve(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::optional<Tensor>* w = weights.data() + layer * kTensors;
    check_present("gated_layers_step", w, {kValue, kGates, kOutput, kKappa, kMu, kDecayHigh, kDecayLow, kExpansion,
                                           kProjection, kOmega, kTable, kInner, kOuter});
    Tensor table = *w[kTable];
    const Tensor bias = torch::stable::narrow(table, 0, first, past + 1);
    auto [hidden, state] = gated_attention_step(
        x, x, true, w[kNormScale], w[kNormShift], *w[kValue], w[kValue + 1], w[kValue + 2], *w[kGates], w[kGates + 1],
        w[kGates + 2], *w[kOutput], w[kOutput + 1], w[kOutput + 2], *w[kKappa], *w[kMu], *w[kDecayHigh], *w[kDecayLow],
        *w[kExpansion], *w[kProjection], *w[kOmega], states[layer], bias, keys[layer], values[layer], past, function);
    x = feed_forward_step(hidden, hidden, true, w[kInnerNormScale], w[kInnerNormShift], *w[kInner], w[kInner + 1],
                          w[kInner + 2], *w[kOuter], w[kOuter + 1], w[kOuter + 2], std::nullopt);
    new_states.push_back(state);
  }
  return {x, new_states};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "gated_layers_step(Tensor x, Tensor?[] weights, Tensor?[] states, Tensor(a!)[] keys, Tensor(b!)[] values, "
      "int first, int past, int function) -> (Tensor, Tensor[])");
  m.def(
      "gated_attention_step(Tensor x, Tensor residual, bool norm, Tensor? norm_scale, Tensor? norm_shift, "
      "Tensor value_weight, Tensor? value_scale, Tensor? value_bias, Tensor gate_weight, Tensor? gate_scale, "
      "Tensor? gate_bias, Tensor output_weight, Tensor? output_scale, Tensor? output_bias, Tensor kappa, Tensor mu, "
      "Tensor decay_high, Tensor decay_low, Tensor expansion, Tensor projection, Tensor omega, Tensor? state, "
      "Tensor bias, Tensor(a!) keys, Tensor(b!) values, int past, int function) -> (Tensor, Tensor)");
  m.def(
      "feed_forward_step(Tensor x, Tensor residual, bool norm, Tensor? norm_scale, Tensor? norm_shift, "
      "Tensor input_weight, Tensor? input_scale, Tensor? input_bias, Tensor output_weight, Tensor? output_scale, "
      "Tensor? output_bias, Tensor? layer_scale) -> Tensor");
  m.def(
      "average_step(Tensor x, Tensor decay_high, Tensor decay_low, Tensor expansion, Tensor projection, Tensor omega, "
      "Tensor? state) -> (Tensor, Tensor)");
  m.def(
      "attention_step(Tensor gates, Tensor value, Tensor kappa, Tensor mu, Tensor bias, Tensor(a!) keys, "
      "Tensor(b!) values, int past, int function) -> Tensor");
  m.def("mix_step(Tensor residual, Tensor gates, Tensor projected) -> Tensor");
}

FM_LIBRARY_CPU(m) {
  m.impl("average_step", TORCH_BOX(&fm::average_step));
  m.impl("attention_step", TORCH_BOX(&fm::attention_step));
  m.impl("mix_step", TORCH_BOX(&fm::mix_step));
  m.impl("gated_attention_step", TORCH_BOX(&fm::gated_attention_step));
  m.impl("feed_forward_step", TORCH_BOX(&fm::feed_forward_step));
  m.impl("gated_layers_step", TORCH_BOX(&fm::gated_layers_step));
}
#endif
