#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// Causal attention of a sequence that grows: the keys and values of earlier rows are kept, those of the new rows are
// put behind them, and query i sees the rows 0 … position + i.
//
//   operands    q, k?, v? as of `attention`, with t = s: the new rows
//               k_cache, v_cache [b,g,n,d]: room for n rows, of which the first `position` are filled
//               position i32 []: position + s <= n, or the launch fails
//   attributes  scale = 0.0: 0 means 1/√d
//   outputs     o [b,s,h,d]; k_cache', v_cache': the caches with rows position … position + s − 1 set (in place)
ir::OpDef cached_attention_def();

// The type of the cache for `rows` rows of an attention with these operands (q, k?, v?).
TensorType attention_cache_type(std::span<const TensorType> operands, std::int64_t rows);

std::shared_ptr<device::Kernel> prepare_cached_attention_cpu(const ir::KernelSpec& spec);
std::size_t cached_attention_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
