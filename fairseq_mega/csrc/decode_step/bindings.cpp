// Operators of decoding on the CPU: shapes and memory; see decode_step.h.
#include "decode_step/decode_step.h"

#include "decode_step/arguments.h"

#if defined(FM_LIBRARY_CPU)
namespace fm {
namespace {

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

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
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
}
#endif
