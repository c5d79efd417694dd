// Operators of normalised, turned queries and keys: shapes, strides and memory; see rotary.h.
#include "common/row_bindings.h"
#include "rotary/rotary.h"

namespace fm {
namespace {

struct Rotary {
  RotaryShape shape;
  RowView x;
  Tensor scale, turns;
  std::optional<Tensor> offset;

  float unit;

  Rotary(const Tensor& x, const Tensor& scale, const std::optional<Tensor>& offset, const Tensor& turns, int64_t first,
         double eps, double unit, const char* op)
      : x(rows_of(x)), scale(packed(scale)), turns(packed(turns)), offset(packed(offset)), unit(float(unit)) {
    check_devices(op, {{"x", x}, {"scale", scale}, {"offset", offset}, {"turns", turns}});
    STD_TORCH_CHECK(x.dim() == 3 && scale.dim() == 3 && scale.size(0) == 2 &&
                        scale.size(1) * scale.size(2) == x.size(2) && scale.size(2) % 2 == 0,
                    op, ": x must be (B, L, H E) and scale (2, H, E) with an even E");
    STD_TORCH_CHECK(!offset || same_shape(*offset, scale), op, ": offset must have the shape of scale");
    STD_TORCH_CHECK(turns.dim() == 3 && turns.size(0) > 0 && turns.size(1) == 2 && turns.size(2) == scale.size(2) &&
                        first >= 0,
                    op, ": turns must be (positions, 2, E), and the first position not negative");
    for (const Tensor& t : {scale, turns, offset ? *offset : scale}) {
      STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float, op, ": scale, offset and turns must be float32");
    }
    shape = {{x.size(0) * x.size(1), x.size(2), element_type(x, "x")}, x.size(1), scale.size(1), scale.size(2), first,
             turns.size(0), static_cast<float>(eps)};
  }

  RotaryInputs inputs() const {
    return {x.tensor.const_data_ptr(), x.stride, scale.const_data_ptr<float>(), data_or_null<float>(offset),
            unit, turns.const_data_ptr<float>()};
  }
};

Tensor coefficients(const Rotary& call, const Tensor& x) {
  return torch::stable::new_empty(x, {call.shape.parts(), 4, call.shape.width}, ScalarType::Float);
}

struct Cpu {
  // Makes the scale from what `unit` makes it of.
  static void prepare(Rotary& call) {
    if (call.unit == 0.f) return;
    Tensor made = like(call.scale);
    const float* from = call.scale.const_data_ptr<float>();
    float* to = made.mutable_data_ptr<float>();
    for (int64_t i = 0; i < made.numel(); ++i) to[i] = (from[i] + 1.f) * call.unit;
    call.scale = made;
  }
  static void forward(const Rotary& call, const Tensor&, void* query, void* key) {
    const RotaryInputs in = call.inputs();
    for_parts(call.shape, [&](int64_t part) { rotary_forward_cpu(call.shape, in, query, key, part); });
  }
  // Returns the gradients of scale and offset.
  static Tensor backward(const Rotary& call, const Tensor& x, RotaryGradients gradients) {
    const RotaryInputs in = call.inputs();
    Tensor parts = coefficients(call, x);
    gradients.coefficients = {parts.mutable_data_ptr<float>()};
    for_parts(call.shape, [&](int64_t part) { rotary_backward_cpu(call.shape, in, gradients, part); });
    Tensor sums = torch::stable::sum(parts, std::vector<int64_t>{0});
    float* of_scale = sums.mutable_data_ptr<float>();
    for (int64_t i = 0; i < 2 * call.shape.width && call.unit != 0.f; ++i) of_scale[i] *= call.unit;
    return sums;
  }
};

#if defined(FM_WITH_CUDA)
struct Cuda {
  static void prepare(Rotary&) {}
  static void forward(const Rotary& call, const Tensor& x, void* query, void* key) {
    if (x.numel() == 0) return;
    DeviceOf guard(x);
    const int error = rotary_forward_cuda(call.shape, call.inputs(), query, key, current_stream(x));
    check_cuda("rotary_query_key", error);
  }
  static Tensor backward(const Rotary& call, const Tensor& x, RotaryGradients gradients) {
    DeviceOf guard(x);
    const RotaryShape& shape = call.shape;
    const CudaSums all(coefficients(call, x), {4, shape.width}, shape.heads * shape.blocks_of_head());
    gradients.coefficients = all.memory;
    const auto run = [&](void* stream) { return rotary_backward_cuda(shape, call.inputs(), gradients, stream); };
    return all.by("rotary_query_key_backward", shape, run);
  }
};
#endif

template <class Device>
std::tuple<Tensor, Tensor> rotary_query_key(Tensor x, Tensor scale, Tensor offset, Tensor turns, int64_t first,
                                            double eps, double unit) {
  Rotary call(x, scale, offset, turns, first, eps, unit, "rotary_query_key");
  Device::prepare(call);
  Tensor query = like(x), key = like(x);
  Device::forward(call, x, query.mutable_data_ptr(), key.mutable_data_ptr());
  return {query, key};
}

template <class Device>
std::tuple<Tensor, Tensor> rotary_query_key_backward(Tensor grad_query, Tensor grad_key, Tensor x, Tensor scale,
                                                     Tensor turns, int64_t first, double eps, double unit) {
  const char* op = "rotary_query_key_backward";
  Rotary call(x, scale, std::nullopt, turns, first, eps, unit, op);
  Device::prepare(call);
  check_devices(op, {{"x", x}, {"the query's gradient", grad_query}, {"the key's gradient", grad_key}});
  check_like(grad_query, x, op, "the query's gradient");
  check_like(grad_key, x, op, "the key's gradient");
  const Tensor q = packed(grad_query), k = packed(grad_key);
  Tensor grad_x = like(x);
  return {grad_x, Device::backward(call, x, {q.const_data_ptr(), k.const_data_ptr(), grad_x.mutable_data_ptr(), {}})};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def(
      "rotary_query_key(Tensor x, Tensor scale, Tensor offset, Tensor turns, int first, float eps, "
      "float unit) -> (Tensor, Tensor)");
  m.def(
      "rotary_query_key_backward(Tensor grad_query, Tensor grad_key, Tensor x, Tensor scale, Tensor turns, int first, "
      "float eps, float unit) -> (Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("rotary_query_key", TORCH_BOX(&fm::rotary_query_key<fm::Cpu>));
  m.impl("rotary_query_key_backward", TORCH_BOX(&fm::rotary_query_key_backward<fm::Cpu>));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("rotary_query_key", TORCH_BOX(&fm::rotary_query_key<fm::Cuda>));
  m.impl("rotary_query_key_backward", TORCH_BOX(&fm::rotary_query_key_backward<fm::Cuda>));
}
#endif
