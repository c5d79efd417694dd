// Operators of decoding on the CPU: shapes and memory; see decoding.h.
#include "decoding/decoding.h"

#include "decoding/arguments.h"
#include "packed_linear/operator.h"

#if defined(FM_LIBRARY_CPU)
namespace fm {
namespace {

Tensor layer_norm_step(const char* op, Tensor x, std::optional<Tensor> scale, std::optional<Tensor> shift) {
  STD_TORCH_CHECK(x.dim() == 2 && x.size(1) > 0, op, ": x must be (B, D)");
  check_devices(op, {{"x", x}, {"norm_scale", scale}, {"norm_shift", shift}});
  const int64_t batch = x.size(0), d = x.size(1);
  const Tensor xs = packed(x);
  Tensor y = torch::stable::new_empty(x, {batch, d});
  const LayerNormStep step{data(xs, {batch, d}, "x"), data(scale, {d}, "norm_scale"), data(shift, {d}, "norm_shift"),
                           y.mutable_data_ptr<float>(), d};
  run_step([&](int64_t begin, int64_t end) { layer_norm_step_cpu(step, begin, end); }, batch, d);
  return y;
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
  const int64_t batch = x.size(0), d = x.size(1), n = expansion.size(1);
  const Tensor xs = packed(x);
  const std::optional<Tensor> ss = packed(state);
  Tensor y = torch::stable::new_empty(x, {batch, d}), new_state = torch::stable::new_empty(x, {batch, d, n});
  const AverageStep step{data(xs, {batch, d}, "x"), data(ss, {batch, d, n}, "state"),
                         data(decay_high, {d, n}, "decay"), data(decay_low, {d, n}, "decay"),
                         data(expansion, {d, n}, "expansion"), data(projection, {d, n}, "projection"),
                         data(omega, {d}, "omega"), y.mutable_data_ptr<float>(), new_state.mutable_data_ptr<float>(),
                         d, n};
  run_step([&](int64_t begin, int64_t end) { average_step_cpu(step, begin, end); }, batch * d, n);
  return {y, new_state};
}

Tensor attention_step(Tensor gates, Tensor value, Tensor kappa, Tensor mu, Tensor bias, Tensor keys, Tensor values,
                      int64_t past, int64_t function) {
  const char* op = "attention_step";
  STD_TORCH_CHECK(gates.dim() == 2 && keys.dim() == 3 && values.dim() == 3 && function >= 0 && function <= 2, op,
                  ": gates must be (B, 2 D + z + v), keys (B, room, z), values (B, room, v)");
  check_devices(op, {{"gates", gates},
                     {"value", value},
                     {"kappa", kappa},
                     {"mu", mu},
                     {"bias", bias},
                     {"keys", keys},
                     {"values", values}});
  const int64_t batch = gates.size(0), room = keys.size(1), z = keys.size(2), v = values.size(2);
  const int64_t d = (gates.size(1) - z - v) / 2;
  STD_TORCH_CHECK(past >= 0 && past < room, op, ": no room for step ", past, " in ", room);
  data(keys, {batch, room, z}, "keys");
  data(values, {batch, room, v}, "values");
  const Tensor gs = packed(gates), vs = packed(value), bs = packed(bias);
  Tensor y = torch::stable::new_empty(value, {batch, v});
  const AttentionStep step{data(gs, {batch, 2 * d + z + v}, "gates"), data(vs, {batch, v}, "value"),
                           data(kappa, {2, z}, "kappa"), data(mu, {2, z}, "mu"), data(bs, {past + 1}, "bias"),
                           keys.mutable_data_ptr<float>(), values.mutable_data_ptr<float>(),
                           y.mutable_data_ptr<float>(), d, z, v, room, past,
                           static_cast<AttentionFunction>(function)};
  run_step([&](int64_t begin, int64_t end) { attention_step_cpu(step, begin, end); }, batch, (past + 1) * (z + v));
  return y;
}

Tensor mix_step(Tensor residual, Tensor gates, Tensor projected) {
  STD_TORCH_CHECK(residual.dim() == 2 && gates.dim() == 2, "mix_step: residual must be (B, D), gates (B, width)");
  check_devices("mix_step", {{"residual", residual}, {"gates", gates}, {"projected", projected}});
  const int64_t batch = residual.size(0), d = residual.size(1), width = gates.size(1);
  STD_TORCH_CHECK(width >= 2 * d, "mix_step: gates must hold the update and the candidate");
  const Tensor rs = packed(residual), gs = packed(gates), ps = packed(projected);
  Tensor out = torch::stable::new_empty(residual, {batch, d});
  const MixStep step{data(rs, {batch, d}, "residual"), data(gs, {batch, width}, "gates"),
                     data(ps, {batch, d}, "projected"), out.mutable_data_ptr<float>(), d, width};
  run_step([&](int64_t begin, int64_t end) { mix_step_cpu(step, begin, end); }, batch, d);
  return out;
}

std::tuple<Tensor, Tensor> gated_attention_step(
    Tensor x, Tensor residual, bool norm, std::optional<Tensor> norm_scale, std::optional<Tensor> norm_shift,
    Tensor value_weight, std::optional<Tensor> value_scale, std::optional<Tensor> value_bias, Tensor gate_weight,
    std::optional<Tensor> gate_scale, std::optional<Tensor> gate_bias, Tensor output_weight,
    std::optional<Tensor> output_scale, std::optional<Tensor> output_bias, Tensor kappa, Tensor mu, Tensor decay_high,
    Tensor decay_low, Tensor expansion, Tensor projection, Tensor omega, std::optional<Tensor> state, Tensor bias,
    Tensor keys, Tensor values, int64_t past, int64_t function) {
  const Tensor normed = norm ? layer_norm_step("gated_attention_step", x, norm_scale, norm_shift) : x;
  const Tensor value = packed_linear(normed, value_weight, value_scale, value_bias);
  const auto [average, new_state] =
      average_step(normed, decay_high, decay_low, expansion, projection, omega, state);
  const Tensor gates = packed_linear(average, gate_weight, gate_scale, gate_bias);
  const Tensor attended = attention_step(gates, value, kappa, mu, bias, keys, values, past, function);
  const Tensor projected = packed_linear(attended, output_weight, output_scale, output_bias);
  return {mix_step(residual, gates, projected), new_state};
}

Tensor feed_forward_step(Tensor x, Tensor residual, bool norm, std::optional<Tensor> norm_scale,
                         std::optional<Tensor> norm_shift, Tensor input_weight, std::optional<Tensor> input_scale,
                         std::optional<Tensor> input_bias, Tensor output_weight, std::optional<Tensor> output_scale,
                         std::optional<Tensor> output_bias, std::optional<Tensor> layer_scale) {
  const char* op = "feed_forward_step";
  const Tensor inner =
      packed_linear(norm ? layer_norm_step(op, x, norm_scale, norm_shift) : x, input_weight, input_scale, input_bias);
  const int64_t batch = inner.size(0), width = output_weight.size(1);
  STD_TORCH_CHECK(inner.size(1) == width || inner.size(1) == 2 * width, op, ": the inner widths ", inner.size(1), " and ",
                  width, " do not fit");
  check_devices(op, {{"x", x}, {"residual", residual}, {"layer_scale", layer_scale}});
  Tensor activated = torch::stable::new_empty(inner, {batch, width});
  const InnerStep step{data(inner, {batch, inner.size(1)}, "inner"), activated.mutable_data_ptr<float>(), width,
                       inner.size(1) != width};
  run_step([&](int64_t begin, int64_t end) { inner_step_cpu(step, begin, end); }, batch, width);
  Tensor out = packed_linear(activated, output_weight, output_scale, output_bias);
  const int64_t d = out.size(1);
  const Tensor rs = packed(residual);
  const AddStep add{data(rs, {batch, d}, "residual"), data(layer_scale, {d}, "layer_scale"),
                    out.mutable_data_ptr<float>(), d};
  run_step([&](int64_t begin, int64_t end) { add_step_cpu(add, begin, end); }, batch, d);
  return out;
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
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
}
#endif
