#pragma once
// Elements of tensors as vectors of floats, whatever type they have in memory and however long the vectors are.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/cpu_level.h"
#include "common/tiles.h"
#include "common/vector_math.h"

namespace fm {

// The length of vectors at a level: GCC splits wider ones badly.
template <CpuLevel kLevel>
constexpr int kVector = kLevel >= CpuLevel::kAvx512 ? 16 : 8;

// A type of elements that the compiler knows, so that each gets a loop of its own.
template <DType kDType>
using Type = std::integral_constant<DType, kDType>;

// Calls function(Type<...>()).
template <class Function>
FM_INLINE void with_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kBFloat16: return function(Type<DType::kBFloat16>());
    case DType::kFloat16: return function(Type<DType::kFloat16>());
    default: return function(Type<DType::kFloat32>());
  }
}

// Where a vector of kN elements begins, and how many of them there are: all, or those left at the end of a row.
template <int kN, bool kAll>
struct Span {
  using Floats = typename Lanes<kN>::Floats;
  using Halves = typename Lanes<kN>::Halves;
  int64_t column, rest;

  FM_INLINE size_t count() const { return kAll ? kN : rest; }
};

// Calls body(span) for all vectors of a row.
template <int kN, class Body>
FM_INLINE void for_each_vector(int64_t width, const Body& body) {
  int64_t column = 0;
  for (; column + kN <= width; column += kN) body(Span<kN, true>{column, kN});
  if (column < width) body(Span<kN, false>{column, width - column});
}

template <class Halves, int kN = sizeof(Halves) / 2>
FM_INLINE typename Lanes<kN>::Floats widen(Halves halves, Type<DType::kBFloat16>) {
  const typename Lanes<kN>::Words bits = __builtin_convertvector(halves, typename Lanes<kN>::Words) << 16;
  typename Lanes<kN>::Floats x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Rounds to nearest, ties to even; NaN stays NaN.
template <class Floats, int kN = lanes_of<Floats>>
FM_INLINE typename Lanes<kN>::Halves narrow(Floats x, Type<DType::kBFloat16>) {
  typename Lanes<kN>::Words bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, nan = bits >> 16 | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded, typename Lanes<kN>::Halves);
}

template <class Halves, int kN = sizeof(Halves) / 2>
FM_INLINE typename Lanes<kN>::Floats widen(Halves halves, Type<DType::kFloat16>) {
  typename Lanes<kN>::Floats x = {};
  for (int i = 0; i < kN; ++i) x[i] = to_float(halves[i], DType::kFloat16);
  return x;
}

template <class Floats, int kN = lanes_of<Floats>>
FM_INLINE typename Lanes<kN>::Halves narrow(Floats x, Type<DType::kFloat16>) {
  typename Lanes<kN>::Halves halves = {};
  for (int i = 0; i < kN; ++i) halves[i] = from_float(x[i], DType::kFloat16);
  return halves;
}

// The elements of a span; zeros in the place of those that do not exist.
template <class Span, DType kDType>
FM_INLINE typename Span::Floats read(const void* row, Span span, Type<kDType> type) {
  if constexpr (kDType == DType::kFloat32) {
    typename Span::Floats x = {};
    std::memcpy(&x, static_cast<const float*>(row) + span.column, span.count() * sizeof(float));
    return x;
  } else {
    typename Span::Halves halves = {};
    std::memcpy(&halves, static_cast<const uint16_t*>(row) + span.column, span.count() * sizeof(uint16_t));
    return widen(halves, type);
  }
}

template <class Span, DType kDType>
FM_INLINE void write(void* row, Span span, Type<kDType> type, typename Span::Floats x) {
  if constexpr (kDType == DType::kFloat32) {
    std::memcpy(static_cast<float*>(row) + span.column, &x, span.count() * sizeof(float));
  } else {
    const typename Span::Halves halves = narrow(x, type);
    std::memcpy(static_cast<uint16_t*>(row) + span.column, &halves, span.count() * sizeof(uint16_t));
  }
}

// A row of a matrix whose rows are `stride` elements apart.
template <class Pointer, DType kDType>
FM_INLINE Pointer row_of(Pointer data, int64_t row, int64_t stride, Type<kDType>) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return static_cast<Byte*>(data) + row * stride * (kDType == DType::kFloat32 ? 4 : 2);
}

}  // namespace fm
