#include "probe/probe.h"

#include "common/bindings.h"

namespace {

fm::Tensor probe(fm::Tensor x, int64_t which) {
  fm::Tensor y = torch::stable::empty_like(x);
  run_probe(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), static_cast<int>(which));
  return y;
}

}  // namespace

FM_LIBRARY(m) { m.def("probe(Tensor x, int which) -> Tensor"); }

FM_LIBRARY_CUDA(m) { m.impl("probe", TORCH_BOX(&probe)); }
