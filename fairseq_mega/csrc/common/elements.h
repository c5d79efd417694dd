#pragma once
// Elements of tensors as vectors of floats, whatever type they have in memory and however long the vectors are.
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/cpu_level.h"
#include "common/random.h"
#include "common/tiles.h"
#include "common/vector_math.h"

namespace fm {

// The length of vectors at a level: GCC splits wider ones badly.
template <CpuLevel kLevel>
constexpr int kVector = kLevel >= CpuLevel::kAvx512 ? 16 : 8;

// A type of elements that the compiler knows, so that each gets a loop of its own.
template <DType kDType>
using Type = std::integral_constant<DType, kDType>;

inline constexpr Type<DType::kFloat32> kFloat;

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

// The same of several whole vectors, side by side.
template <int kN, int kCount>
struct WideSpan {
  using Floats = Several<typename Lanes<kN>::Floats, kCount>;
  int64_t column;

  FM_INLINE Span<kN, true> part(int i) const { return {column + i * kN, kN}; }
};

// Calls body(span) for all vectors of a row.
template <int kN, class Body>
FM_INLINE void for_each_vector(int64_t width, const Body& body, int64_t column = 0) {
  for (; column + kN <= width; column += kN) body(Span<kN, true>{column, kN});
  if (column < width) body(Span<kN, false>{column, width - column});
}

// The same, several vectors at a time where there are so many: for long lines of operations. Processors without AVX-512
// have too few registers for that.
template <int kN, class Body>
FM_INLINE void for_each_span(int64_t width, const Body& body) {
  constexpr int kCount = 4;
  int64_t column = 0;
  if constexpr (kN == kVector<CpuLevel::kAvx512>) {
    for (; column + kCount * kN <= width; column += kCount * kN) body(WideSpan<kN, kCount>{column});
  }
  for_each_vector<kN>(width, body, column);
}

// The upper halves of 32 bits, from 16 bits and back. One permutation each where the compiler can be told so (GCC 12,
// Clang); a conversion takes four instructions to widen AVX-512's vectors.
#if __has_builtin(__builtin_shufflevector)
template <class Halves, size_t... kI>
FM_INLINE auto interleave(Halves halves, std::index_sequence<kI...>) {
  return __builtin_shufflevector(Halves{}, halves, (kI % 2 ? sizeof...(kI) / 2 + kI / 2 : 0)...);
}

template <class Pairs, size_t... kI>
FM_INLINE auto every_second(Pairs pairs, std::index_sequence<kI...>) {
  return __builtin_shufflevector(pairs, pairs, (2 * kI + 1)...);
}

template <int kN>
FM_INLINE typename Lanes<kN>::Words to_upper(typename Lanes<kN>::Halves halves) {
  const auto pairs = interleave(halves, std::make_index_sequence<2 * kN>());
  typename Lanes<kN>::Words words;
  std::memcpy(&words, &pairs, sizeof words);
  return words;
}

template <int kN>
FM_INLINE typename Lanes<kN>::Halves from_upper(typename Lanes<kN>::Words words) {
  typename Lanes<2 * kN>::Halves pairs;
  std::memcpy(&pairs, &words, sizeof pairs);
  return every_second(pairs, std::make_index_sequence<kN>());
}
#else
template <int kN>
FM_INLINE typename Lanes<kN>::Words to_upper(typename Lanes<kN>::Halves halves) {
  return __builtin_convertvector(halves, typename Lanes<kN>::Words) << 16;
}

template <int kN>
FM_INLINE typename Lanes<kN>::Halves from_upper(typename Lanes<kN>::Words words) {
  return __builtin_convertvector(words >> 16, typename Lanes<kN>::Halves);
}
#endif

template <class Halves, int kN = sizeof(Halves) / 2>
FM_INLINE typename Lanes<kN>::Floats widen(Halves halves, Type<DType::kBFloat16>) {
  const auto bits = to_upper<kN>(halves);
  typename Lanes<kN>::Floats x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Rounds to nearest, ties to even; NaN stays NaN.
template <class Floats, int kN = lanes_of<Floats>>
FM_INLINE typename Lanes<kN>::Halves narrow(Floats x, Type<DType::kBFloat16>) {
  typename Lanes<kN>::Words bits;
  std::memcpy(&bits, &x, sizeof bits);
  return from_upper<kN>(x == x ? bits + 0x7fffu + (bits >> 16 & 1u) : bits | 0x400000u);
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

template <int kN, int kCount, DType kDType>
FM_INLINE auto read(const void* row, WideSpan<kN, kCount> span, Type<kDType> type) {
  typename WideSpan<kN, kCount>::Floats x;
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) x.parts[i] = read(row, span.part(i), type);
  return x;
}

template <int kN, int kCount, DType kDType>
FM_INLINE void write(void* row, WideSpan<kN, kCount> span, Type<kDType> type,
                     typename WideSpan<kN, kCount>::Floats x) {
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) write(row, span.part(i), type, x.parts[i]);
}

// What dropout multiplies the elements of a span with, in a row of such hashes.
template <int kN, bool kAll>
FM_INLINE typename Lanes<kN>::Floats factors(const Dropping& dropping, RowBits row, Span<kN, kAll> span) {
  using Floats = typename Lanes<kN>::Floats;
  typename Lanes<kN>::Words columns = {};
  for (int i = 0; i < kN; ++i) columns[i] = static_cast<uint32_t>(i);
  const auto hashes = hash_of(row, columns + static_cast<uint32_t>(span.column));
  return select(hashes < dropping.limit, Floats{}, Floats{} + dropping.kept);
}

// A row of a matrix whose rows are `stride` elements apart.
template <class Pointer, DType kDType>
FM_INLINE Pointer row_of(Pointer data, int64_t row, int64_t stride, Type<kDType>) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return static_cast<Byte*>(data) + row * stride * (kDType == DType::kFloat32 ? 4 : 2);
}

// Asks for the memory of a row that is read soon: rows that lie apart are more than processors foresee.
constexpr int64_t kAhead = 8;

template <DType kDType>
FM_INLINE void prefetch_row(const void* data, int64_t row, int64_t stride, int64_t width, Type<kDType> type) {
  const char* begin = static_cast<const char*>(row_of(data, row, stride, type));
  const int64_t size = width * (kDType == DType::kFloat32 ? 4 : 2);
  for (int64_t byte = 0; byte < size; byte += 64) __builtin_prefetch(begin + byte);
}

}  // namespace fm
