// The update gate on the CPU, eight elements at a time; see gate.h.
#include "gate/gate.h"

#include "common/tiles.h"
#include "common/vector_math.h"

namespace fm {
namespace {

// Eight elements, or with kFull = false `count` of any type. The two are separate instances, so that whole vectors of
// float32, the usual case, never leave the registers.
template <bool kFull>
FM_INLINE Floats read(const void* data, int64_t index, int64_t count, DType dtype) {
  if constexpr (kFull) return load(static_cast<const float*>(data) + index);
  float values[kWidth] = {};
  for (int64_t i = 0; i < count; ++i) {
    values[i] = dtype == DType::kFloat32 ? static_cast<const float*>(data)[index + i]
                                         : to_float(static_cast<const uint16_t*>(data)[index + i], dtype);
  }
  return load(values);
}

template <bool kFull>
FM_INLINE void write(void* data, int64_t index, int64_t count, DType dtype, Floats vector) {
  if constexpr (kFull) return store(static_cast<float*>(data) + index, vector);
  float values[kWidth];
  store(values, vector);
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kFloat32) {
      static_cast<float*>(data)[index + i] = values[i];
    } else {
      static_cast<uint16_t*>(data)[index + i] = from_float(values[i], dtype);
    }
  }
}

struct Element {
  Floats x, gate, sum, slope;  // slope: sigmoid(sum), for the SiLU
  Floats candidate;
};

template <bool kFull>
FM_INLINE Element element(const GateInputs& in, int64_t row, int64_t column, int64_t count, DType dtype) {
  Element e;
  e.x = read<kFull>(in.x, row * in.x_stride + column, count, dtype);
  e.gate = sigmoid(read<kFull>(in.update, row * in.update_stride + column, count, dtype));
  e.sum = e.candidate = read<kFull>(in.candidate, row * in.candidate_stride + column, count, dtype);
  e.slope = Floats{};
  if (in.addend) {
    e.sum += read<kFull>(in.addend, row * in.addend_stride + column, count, dtype);
    e.slope = sigmoid(e.sum);
    e.candidate = e.sum * e.slope;
  }
  return e;
}

template <bool kFull>
FM_INLINE void forward(const GateShape& shape, const GateInputs& in, void* out, int64_t row, int64_t column) {
  const int64_t count = shape.width - column < kWidth ? shape.width - column : kWidth;
  const Element e = element<kFull>(in, row, column, count, shape.dtype);
  write<kFull>(out, row * shape.width + column, count, shape.dtype, e.x + e.gate * (e.candidate - e.x));
}

template <bool kFull>
FM_INLINE void backward(const GateShape& shape, const GateInputs& in, const GateGradients& gradients, int64_t row,
                        int64_t column) {
  const int64_t count = shape.width - column < kWidth ? shape.width - column : kWidth;
  const int64_t index = row * shape.width + column;
  const Element e = element<kFull>(in, row, column, count, shape.dtype);
  const Floats g = read<kFull>(gradients.out, index, count, shape.dtype);
  Floats candidate = g * e.gate;
  write<kFull>(gradients.x, index, count, shape.dtype, g - candidate);
  write<kFull>(gradients.update, index, count, shape.dtype, candidate * (1.f - e.gate) * (e.candidate - e.x));
  if (in.addend) candidate *= e.slope * (1.f + e.sum * (1.f - e.slope));
  write<kFull>(gradients.candidate, index, count, shape.dtype, candidate);
}

// Columns of a row that are done as whole vectors.
FM_INLINE int64_t whole(const GateShape& shape) {
  return shape.dtype == DType::kFloat32 ? shape.width / kWidth * kWidth : 0;
}

}  // namespace

FM_CLONES void gate_forward_cpu(const GateShape& shape, const GateInputs& in, void* out, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t column = 0;
    for (; column < whole(shape); column += kWidth) forward<true>(shape, in, out, row, column);
    for (; column < shape.width; column += kWidth) forward<false>(shape, in, out, row, column);
  }
}

FM_CLONES void gate_backward_cpu(const GateShape& shape, const GateInputs& in, const GateGradients& gradients,
                                 int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t column = 0;
    for (; column < whole(shape); column += kWidth) backward<true>(shape, in, gradients, row, column);
    for (; column < shape.width; column += kWidth) backward<false>(shape, in, gradients, row, column);
  }
}

}  // namespace fm
