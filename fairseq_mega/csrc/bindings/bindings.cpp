// The library itself: its name, what it was built from, and the CUDA stream of the caller.
#include "bindings/bindings.h"

#include <dlfcn.h>

#include <string>

namespace fm {

void* current_stream(const Tensor& t) {
#if defined(FM_CUDA_SIM)
  static_cast<void>(t);
  return reinterpret_cast<void*>(FM_SIM_STREAM);  // which every launch has to name
#elif !defined(FM_WITH_CUDA)
  static_cast<void>(t);
  return nullptr;
#else
  // Looked up when first needed, so that the library also loads under a torch without CUDA.
  using Function = int32_t (*)(int32_t, void**);
  static const Function function = [] {
    void* torch_cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return torch_cuda ? reinterpret_cast<Function>(dlsym(torch_cuda, "aoti_torch_get_current_cuda_stream")) : nullptr;
  }();
  STD_TORCH_CHECK(function != nullptr, "this torch has no CUDA support");
  void* stream = nullptr;
  STD_TORCH_CHECK(function(t.get_device_index(), &stream) == 0, "torch has no current CUDA stream");
  return stream;
#endif
}

}  // namespace fm

#ifndef FM_SOURCES_HASH
#define FM_SOURCES_HASH "unknown"
#endif

namespace {

std::string sources_hash() { return FM_SOURCES_HASH; }

bool has_cuda() {
#if defined(FM_WITH_CUDA)
  return true;
#else
  return false;
#endif
}

}  // namespace

FM_LIBRARY(m) {
  m.def("sources_hash() -> str");
  m.def("has_cuda() -> bool");
}

FM_LIBRARY_IMPL_(FM_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("sources_hash", TORCH_BOX(&sources_hash));
  m.impl("has_cuda", TORCH_BOX(&has_cuda));
}
