// Operators of MEGA's queries and keys: shapes, strides and memory; see query_key.h.
#include "common/row_bindings.h"
#include "query_key/query_key.h"

namespace fm {
namespace {

struct Cpu {
  static void forward(const RowParts& shape, const QueryKey& in, const Tensor&, void* query, void* key) {
    for_parts(shape, [&](int64_t part) { query_key_forward_cpu(shape, in, query, key, part); });
  }
  static Tensor backward(const RowParts& shape, const QueryKey& in, QueryKeyGradients& gradients, Tensor& sums) {
    gradients.coefficients = {sums.mutable_data_ptr<float>()};
    for_parts(shape, [&](int64_t part) { query_key_backward_cpu(shape, in, gradients, part); });
    return total(sums, shape.parts(), {2, 2, shape.width});
  }
};

#if defined(FM_WITH_CUDA)
struct Cuda {
  static void forward(const RowParts& shape, const QueryKey& in, const Tensor& x, void* query, void* key) {
    if (shape.rows == 0) return;
    DeviceOf guard(x);
    check_cuda("query_key", query_key_forward_cuda(shape, in, query, key, current_stream(x)));
  }
  static Tensor backward(const RowParts& shape, const QueryKey& in, QueryKeyGradients& gradients, Tensor& sums) {
    DeviceOf guard(sums);
    const CudaSums all(sums, {2, 2, shape.width}, row_tiles(shape));
    gradients.coefficients = all.memory;
    const auto run = [&](void* stream) { return query_key_backward_cuda(shape, in, gradients, stream); };
    return all.by("query_key_backward", shape, run);
  }
};
#endif

template <class Device>
std::tuple<Tensor, Tensor> query_key(Tensor x, Tensor kappa, Tensor mu) {
  const char* op = "query_key";
  const RowParts shape = row_parts(x, op);
  check_devices(op, {{"x", x}, {"kappa", kappa}, {"mu", mu}});
  const RowView rows = rows_of(x);
  const Tensor scales = columns(kappa, shape, 2, op, "kappa"), offsets = columns(mu, shape, 2, op, "mu");
  Tensor query = like(x), key = like(x);
  const QueryKey in{rows_in(rows), scales.const_data_ptr<float>(), offsets.const_data_ptr<float>()};
  Device::forward(shape, in, x, query.mutable_data_ptr(), key.mutable_data_ptr());
  return {query, key};
}

template <class Device>
std::tuple<Tensor, Tensor> query_key_backward(Tensor grad_query, Tensor grad_key, Tensor x, Tensor kappa) {
  const char* op = "query_key_backward";
  const RowParts shape = row_parts(x, op);
  check_devices(op, {{"x", x}, {"kappa", kappa}, {"grad_query", grad_query}, {"grad_key", grad_key}});
  check_like(grad_query, x, op, "the gradient of the query");
  check_like(grad_key, x, op, "the gradient of the key");
  const RowView rows = rows_of(x);
  const Tensor scales = columns(kappa, shape, 2, op, "kappa"), q = packed(grad_query), k = packed(grad_key);
  Tensor grad_x = like(x);
  Tensor sums = torch::stable::new_empty(x, {shape.parts(), 4, shape.width}, ScalarType::Float);
  const QueryKey in{rows_in(rows), scales.const_data_ptr<float>(), nullptr};
  QueryKeyGradients gradients{q.const_data_ptr(), k.const_data_ptr(), grad_x.mutable_data_ptr(), {}};
  return {grad_x, Device::backward(shape, in, gradients, sums)};
}

}  // namespace
}  // namespace fm

FM_LIBRARY(m) {
  m.def("query_key(Tensor x, Tensor kappa, Tensor mu) -> (Tensor, Tensor)");
  m.def("query_key_backward(Tensor grad_query, Tensor grad_key, Tensor x, Tensor kappa) -> (Tensor, Tensor)");
}

#if defined(FM_LIBRARY_CPU)
FM_LIBRARY_CPU(m) {
  m.impl("query_key", TORCH_BOX(&fm::query_key<fm::Cpu>));
  m.impl("query_key_backward", TORCH_BOX(&fm::query_key_backward<fm::Cpu>));
}
#endif

#if defined(FM_WITH_CUDA)
FM_LIBRARY_CUDA(m) {
  m.impl("query_key", TORCH_BOX(&fm::query_key<fm::Cuda>));
  m.impl("query_key_backward", TORCH_BOX(&fm::query_key_backward<fm::Cuda>));
}
#endif
