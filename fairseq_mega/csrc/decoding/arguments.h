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

}  // namespace fm
