// Operator of linear maps of a few rows on the CPU: shapes and memory; see packed_linear.h.
#include "packed_linear/packed_linear.h"

#include "packed_linear/operator.h"

FM_LIBRARY(m) { m.def("packed_linear(Tensor x, Tensor weight, Tensor? scale, Tensor? bias) -> Tensor"); }

#if defined(FM_LIBRARY_CPU)
namespace fm {
namespace {

constexpr int64_t kWork = 1 << 17;  // multiplications that are worth a thread

WeightType weight_type(const char* op, const Tensor& weight) {
  if (weight.scalar_type() == ScalarType::Float) return WeightType::kFloat32;
  if (weight.scalar_type() == ScalarType::BFloat16) return WeightType::kBFloat16;
  STD_TORCH_CHECK(weight.scalar_type() == ScalarType::Char, op, ": weight must be float32, bfloat16 or int8");
  return WeightType::kInt8;
}

}  // namespace

void packed_linear(PackedRows x, const Tensor& weight, const std::optional<Tensor>& scale,
                   const std::optional<Tensor>& bias, float* out) {
  const char* op = "packed_linear";
  STD_TORCH_CHECK(weight.dim() == 2 && weight.size(1) == x.width && weight.is_contiguous(), op,
                  ": weight must be (outputs, inputs) and contiguous, with ", x.width, " inputs");
  const int64_t outputs = weight.size(0);
  const WeightType type = weight_type(op, weight);
  for (const auto& [name, t] : {std::pair{"scale", &scale}, {"bias", &bias}}) {
    STD_TORCH_CHECK(!t->has_value() || ((*t)->scalar_type() == ScalarType::Float && (*t)->dim() == 1 &&
                                        (*t)->size(0) == outputs),
                    op, ": ", name, " must be (outputs) in float32");
  }
  const std::optional<Tensor> scales = packed(scale), biases = packed(bias);
  const PackedLinear map{x.data,
                         weight.const_data_ptr(),
                         data_or_null<float>(scales),
                         data_or_null<float>(biases),
                         out,
                         x.count,
                         x.width,
                         outputs,
                         type};
  const int64_t grain = std::max<int64_t>(8, kWork / std::max<int64_t>(x.count * x.width, 1));
  torch::stable::parallel_for(0, outputs, grain,
                              [&](int64_t begin, int64_t end) { packed_linear_cpu(map, begin, end); });
}

namespace {

Tensor packed_linear_operator(Tensor x, Tensor weight, std::optional<Tensor> scale, std::optional<Tensor> bias) {
  const char* op = "packed_linear";
  check_devices(op, {{"x", x}, {"weight", weight}, {"scale", scale}, {"bias", bias}});
  STD_TORCH_CHECK(x.dim() == 2 && x.scalar_type() == ScalarType::Float, op, ": x must be (rows, inputs) in float32");
  STD_TORCH_CHECK(weight.dim() == 2, op, ": weight must be (outputs, inputs)");
  const Tensor xs = packed(x);
  Tensor y = torch::stable::new_empty(x, {x.size(0), weight.size(0)});
  packed_linear({xs.const_data_ptr<float>(), x.size(0), x.size(1)}, weight, scale, bias, y.mutable_data_ptr<float>());
  return y;
}

}  // namespace
}  // namespace fm

FM_LIBRARY_CPU(m) { m.impl("packed_linear", TORCH_BOX(&fm::packed_linear_operator)); }
#endif
