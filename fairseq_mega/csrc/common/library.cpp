// The library itself: its name, what it was built from, and the CUDA stream of the caller.
#include "common/bindings.h"

#include <dlfcn.h>

#include <string>

#include "common/cpu_level.h"
#include "common/device.h"

namespace fm {
namespace {

std::string device_name(const Tensor& t) {
  if (t.is_cpu()) return "cpu";
  if (t.is_cuda()) return "cuda:" + std::to_string(t.get_device_index());
  int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(t.get(), &type));
  return type == aoti_torch_device_type_meta() ? "meta" : "a device of another kind";
}

bool same_device(const Tensor& a, const Tensor& b) {
  int32_t types[2] = {0, 0};
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(a.get(), &types[0]));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(b.get(), &types[1]));
  return types[0] == types[1] && a.get_device_index() == b.get_device_index();
}

}  // namespace

void check_devices(const char* op, std::initializer_list<Named> tensors) {
  const Named& first = *tensors.begin();
  for (const Named& other : tensors) {
    if (other.tensor == nullptr || same_device(*other.tensor, *first.tensor)) continue;
    STD_TORCH_CHECK(false, op, ": ", other.name, " is on ", device_name(*other.tensor), ", ", first.name, " on ",
                    device_name(*first.tensor), "; move them to one device");
  }
}

#if defined(FM_WITH_CUDA)
void check_cuda(const char* op, int error, const char* hint) {
  STD_TORCH_CHECK(error == 0, op, ": CUDA error ", error, ", ", cuda_error_text(error), hint);
}
#endif

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

// Ten times the lowest compute capability that the CUDA kernels run on, 0 without CUDA.
int64_t cuda_architecture() {
#if defined(FM_CUDA_ARCHITECTURE)
  return FM_CUDA_ARCHITECTURE;
#else
  return 0;
#endif
}

#if defined(FM_LIBRARY_CPU)
// The levels that this machine has, from the lowest to the highest, with commas.
std::string cpu_levels() {
  std::string names = fm::kCpuLevelNames[0];
  for (int level = 1; level <= static_cast<int>(fm::highest_cpu_level()); ++level) {
    names += std::string(",") + fm::kCpuLevelNames[level];
  }
  return names;
}

std::string cpu_level() { return fm::kCpuLevelNames[static_cast<int>(fm::current_cpu_level.load())]; }

void set_cpu_level(std::string name) {
  for (int level = 0; level <= static_cast<int>(fm::highest_cpu_level()); ++level) {
    if (name == fm::kCpuLevelNames[level]) return fm::current_cpu_level.store(static_cast<fm::CpuLevel>(level));
  }
  STD_TORCH_CHECK(false, "this machine has no CPU level ", name, ": choose from ", cpu_levels());
}
#endif

}  // namespace

FM_LIBRARY(m) {
  m.def("sources_hash() -> str");
  m.def("has_cuda() -> bool");
  m.def("cuda_architecture() -> int");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY(m) {
  m.def("cpu_levels() -> str");
  m.def("cpu_level() -> str");
  m.def("set_cpu_level(str level) -> ()");
}

FM_LIBRARY_IMPL_(FM_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("cpu_levels", TORCH_BOX(&cpu_levels));
  m.impl("cpu_level", TORCH_BOX(&cpu_level));
  m.impl("set_cpu_level", TORCH_BOX(&set_cpu_level));
}
#endif

FM_LIBRARY_IMPL_(FM_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("sources_hash", TORCH_BOX(&sources_hash));
  m.impl("has_cuda", TORCH_BOX(&has_cuda));
  m.impl("cuda_architecture", TORCH_BOX(&cuda_architecture));
}
