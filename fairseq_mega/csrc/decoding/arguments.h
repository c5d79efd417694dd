#pragma once
// What the bindings of the steps of decoding share: checked data, and threads.
#include <memory>
#include <vector>

#include "common/bindings.h"

namespace fm {

// Steps of the inner loops that are worth a thread.
constexpr int64_t kStepWork = 1 << 15;

template <class Part>
void run_step(Part part, int64_t count, int64_t work) {
  torch::stable::parallel_for(0, count, std::max<int64_t>(1, kStepWork / std::max<int64_t>(work, 1)), part);
}

// Memory for what the parts of a step hand on to each other: a tensor would cost more than the work on one row.
class Scratch {
 public:
  float* take(int64_t size) {
    return parts_.emplace_back(std::make_unique_for_overwrite<float[]>(static_cast<size_t>(size))).get();
  }

 private:
  std::vector<std::unique_ptr<float[]>> parts_;
};

// Data of a contiguous float32 tensor of that shape; `what` names it in the error.
inline const float* data(const Tensor& t, std::initializer_list<int64_t> shape, const char* what) {
  bool fits = t.scalar_type() == ScalarType::Float && t.is_contiguous() &&
              t.dim() == static_cast<int64_t>(shape.size());
  int64_t axis = 0;
  for (const int64_t size : shape) fits = fits && t.size(axis++) == size;
  STD_TORCH_CHECK(fits, "decoding: ", what, " must be a contiguous float32 tensor of the shape its operator describes");
  return t.const_data_ptr<float>();
}

// As above; null for a tensor that is not there.
inline const float* data(const std::optional<Tensor>& t, std::initializer_list<int64_t> shape, const char* what) {
  return t.has_value() ? data(*t, shape, what) : nullptr;
}

// Raises an error for a weight of a layer that is not there.
inline void check_present(const char* op, const std::optional<Tensor>* weights, std::initializer_list<int> places) {
  for (const int place : places) STD_TORCH_CHECK(weights[place].has_value(), op, ": weight ", place, " is missing");
}

// residual + layer_scale W2 SiLU(W1 x), with a layer norm of x before; see the operator of that name.
Tensor feed_forward_step(Tensor x, Tensor residual, bool norm, std::optional<Tensor> norm_scale,
                         std::optional<Tensor> norm_shift, Tensor input_weight, std::optional<Tensor> input_scale,
                         std::optional<Tensor> input_bias, Tensor output_weight, std::optional<Tensor> output_scale,
                         std::optional<Tensor> output_bias, std::optional<Tensor> layer_scale);

}  // namespace fm
