// Dropout on the CPU; see dropout.h.
#include "dropout/dropout.h"

#include "common/cpu_parts.h"

namespace fm {
namespace {

template <CpuLevel kLevel>
FM_INLINE void dropout(const RowParts& shape, const Dropping& dropping, const RowsIn& in, void* out, int64_t part) {
  with_type(shape.dtype, [&](auto type) __attribute__((always_inline)) {
    for (int64_t i = shape.begin(part); i < shape.end(part); ++i) {
      prefetch_row(shape, in, i, part, type);
      const RowBits bits = dropping.row(i);
      const void* x = row_of(in, i, type);
      void* to = row_of(out, i, shape.width, type);
      for_each_vector<kVector<kLevel>>(shape.width, [&](auto span) __attribute__((always_inline)) {
        write(to, span, type, read(x, span, type) * factors(dropping, bits, span));
      });
    }
  });
}

}  // namespace

void dropout_cpu(const RowParts& shape, const Dropping& dropping, const RowsIn& x, void* out, int64_t part) {
  FM_AT_CPU_LEVEL(dropout<kLevel>(shape, dropping, x, out, part));
}

}  // namespace fm
