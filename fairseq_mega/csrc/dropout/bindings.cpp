// Operator of dropout: shapes, strides and memory; see dropout.h. There are kernels for CPUs only.
#include "common/row_bindings.h"

#if defined(FM_LIBRARY_CPU)
#include "dropout/dropout.h"

namespace fm {
namespace {

Tensor dropout(Tensor x, Tensor seed, double p) {
  const char* op = "dropout";
  const RowParts shape = row_parts(x, op);
  check_devices(op, {{"x", x}, {"seed", seed}});
  const Dropping dropping = dropping_of(seed, p, op);
  const RowView rows = rows_of(x);
  Tensor out = like(x);
  void* to = out.mutable_data_ptr();
  for_parts(shape, [&](int64_t part) { dropout_cpu(shape, dropping, rows_in(rows), to, part); });
  return out;
}

}  // namespace
}  // namespace fm
#endif

FM_LIBRARY(m) { m.def("dropout(Tensor x, Tensor seed, float p) -> Tensor"); }

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) { m.impl("dropout", TORCH_BOX(&fm::dropout)); }
#endif
