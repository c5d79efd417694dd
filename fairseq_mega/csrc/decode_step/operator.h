#pragma once
// An operator of decoding itself, for the bindings of operators that have it inside.
#include "common/bindings.h"

namespace fm {

// residual + layer_scale W2 SiLU(W1 x), with SiLU of one half times the other where W1 has twice W2's inputs.
Tensor feed_forward_step(Tensor x, Tensor residual, Tensor input_weight, std::optional<Tensor> input_scale,
                         std::optional<Tensor> input_bias, Tensor output_weight, std::optional<Tensor> output_scale,
                         std::optional<Tensor> output_bias, std::optional<Tensor> layer_scale);

}  // namespace fm
