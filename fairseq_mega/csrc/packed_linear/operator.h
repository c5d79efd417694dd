#pragma once
// The operator itself, for the bindings of operators that have linear maps inside.
#include "common/bindings.h"

namespace fm {

// Maps x (rows, inputs) of float32 to (rows, outputs) by a matrix (outputs, inputs) of float32, bfloat16 or int8, each
// row times its scale, and a bias (outputs).
Tensor packed_linear(Tensor x, Tensor weight, std::optional<Tensor> scale, std::optional<Tensor> bias);

}  // namespace fm
