#pragma once
// The update gate's inputs in the bindings: checks, strides and memory; see gate.h.
#include "common/row_bindings.h"
#include "gate/gate.h"

namespace fm {

struct GateViews {
  GateShape shape;
  RowView x, candidate;
  std::optional<RowView> update, addend;
  Dropping dropping;
  std::optional<Tensor> bias;

  GateInputs inputs() const {
    return {x.tensor.const_data_ptr(),
            update ? update->tensor.const_data_ptr() : nullptr,
            candidate.tensor.const_data_ptr(),
            addend ? addend->tensor.const_data_ptr() : nullptr,
            x.stride,
            update ? update->stride : 0,
            candidate.stride,
            addend ? addend->stride : 0,
            dropping,
            data_or_null<float>(bias)};
  }
};

inline GateViews gate_views(const Tensor& x, const std::optional<Tensor>& update, const Tensor& candidate,
                            const std::optional<Tensor>& addend, const std::optional<Tensor>& bias,
                            const std::optional<Tensor>& seed, double p, const char* op) {
  GateShape shape{row_parts(x, op)};
  shape.residual_dtype = shape.dtype;
  shape.dtype = element_type(candidate, "candidate");
  check_devices(op, {{"residual", x},
                     {"update", update},
                     {"candidate", candidate},
                     {"addend", addend},
                     {"bias", bias},
                     {"seed", seed}});
  const bool types = shape.residual_dtype == shape.dtype || shape.residual_dtype == DType::kFloat32;
  const Tensor* others[] = {&candidate, update ? &*update : &candidate, addend ? &*addend : &candidate};
  for (const Tensor* t : others) {
    STD_TORCH_CHECK(types && same_shape(*t, x) && t->scalar_type() == candidate.scalar_type(), op,
                    ": residual, update, candidate and addend must have one shape and type, or the residual float32");
  }
  GateViews found{shape, rows_of(x), rows_of(candidate), std::nullopt, std::nullopt, {}, std::nullopt};
  if (update) found.update = rows_of(*update);
  if (addend) found.addend = rows_of(*addend);
  if (bias) found.bias = columns(*bias, shape, 1, op, "bias");
  if (seed) found.dropping = dropping_of(*seed, p, op);
  return found;
}

}  // namespace fm
