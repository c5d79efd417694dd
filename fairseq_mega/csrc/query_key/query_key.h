#pragma once
// Queries and keys of MEGA from their shared representation, in one pass over memory:
//
//   s = SiLU(x),    query = kappa_0 s + mu_0,    key = kappa_1 s + mu_1
//
// All tensors are (rows, width) and of one type, what a column has float32; rows of x may lie apart, the others are
// contiguous.
#include "common/rows.h"

namespace fm {

struct QueryKey {
  RowsIn x;
  const float *kappa, *mu;  // (2, width)
};

struct QueryKeyGradients {
  const void *query, *key;
  void* x;
  RowSums coefficients;  // four a column: of kappa, then of mu
};

void query_key_forward_cpu(const RowParts&, const QueryKey&, void* query, void* key, int64_t part);
void query_key_backward_cpu(const RowParts&, const QueryKey&, const QueryKeyGradients&, int64_t part);
int query_key_forward_cuda(const RowParts&, const QueryKey&, void* query, void* key, void* stream);
int query_key_backward_cuda(const RowParts&, const QueryKey&, const QueryKeyGradients&, void* stream);

}  // namespace fm
