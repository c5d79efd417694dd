#pragma once
// Several vectors as one: every operation is done to all of them before the next one, which has its operands by then.
// With one vector at a time a long line of operations waits for itself more than processors can look ahead.
#include <type_traits>
#include <utility>

#include "common/common.h"

namespace fm {

template <class Vector, int kCount>
struct Several {
  using Number = std::remove_reference_t<decltype(std::declval<Vector&>()[0])>;
  Vector parts[kCount] = {};

  Several() = default;
  FM_INLINE Several(Number x) {
    for (Vector& part : parts) part = Vector{} + x;
  }
};

template <class Result, class Function, class... Vectors, int kCount>
FM_INLINE Several<Result, kCount> for_parts(const Function& function, const Several<Vectors, kCount>&... vectors) {
  Several<Result, kCount> results;
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) results.parts[i] = function(vectors.parts[i]...);
  return results;
}

#define FM_OPERATOR_OF_SEVERAL(op)                                                                                    \
  template <class Vector, int kCount>                                                                                 \
  FM_INLINE auto operator op(const Several<Vector, kCount>& a, const Several<Vector, kCount>& b) {                    \
    using Result = decltype(a.parts[0] op b.parts[0]);                                                                \
    return for_parts<Result>([](Vector x, Vector y) __attribute__((always_inline)) { return x op y; }, a, b);         \
  }                                                                                                                   \
  template <class Vector, int kCount>                                                                                 \
  FM_INLINE auto operator op(const Several<Vector, kCount>& a, typename Several<Vector, kCount>::Number b) {          \
    return a op Several<Vector, kCount>(b);                                                                           \
  }                                                                                                                   \
  template <class Vector, int kCount>                                                                                 \
  FM_INLINE auto operator op(typename Several<Vector, kCount>::Number a, const Several<Vector, kCount>& b) {          \
    return Several<Vector, kCount>(a) op b;                                                                           \
  }
FM_OPERATOR_OF_SEVERAL(+)
FM_OPERATOR_OF_SEVERAL(-)
FM_OPERATOR_OF_SEVERAL(*)
FM_OPERATOR_OF_SEVERAL(/)
FM_OPERATOR_OF_SEVERAL(<)
FM_OPERATOR_OF_SEVERAL(>)
FM_OPERATOR_OF_SEVERAL(<<)
#undef FM_OPERATOR_OF_SEVERAL

template <class Vector, int kCount>
FM_INLINE Several<Vector, kCount> operator-(const Several<Vector, kCount>& x) {
  return for_parts<Vector>([](Vector part) __attribute__((always_inline)) { return -part; }, x);
}

template <class Vector, int kCount>
FM_INLINE Several<Vector, kCount>& operator+=(Several<Vector, kCount>& a, const Several<Vector, kCount>& b) {
  return a = a + b;
}

template <class Vector, int kCount>
FM_INLINE Several<Vector, kCount>& operator*=(Several<Vector, kCount>& a, const Several<Vector, kCount>& b) {
  return a = a * b;
}

template <class Condition, class Vector, int kCount>
FM_INLINE Several<Vector, kCount> select(const Several<Condition, kCount>& condition,
                                         const Several<Vector, kCount>& yes, const Several<Vector, kCount>& no) {
  return for_parts<Vector>(
      [](Condition c, Vector x, Vector y) __attribute__((always_inline)) { return c ? x : y; }, condition, yes, no);
}

}  // namespace fm
