#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// As cached_attention, with keys and values kept in 8 bits: each row of a head as codes with a scale of its own,
// scale = max|x| / 127, code = x / scale rounded to nearest. The new rows are read as they were kept, too, so that a
// sequence gives the same however it is cut into pieces.
//
//   operands    q, k?, v?, k_codes, k_scale, v_codes, v_scale, position
//               codes i8 [b,g,n,d], scales f32 [b,g,n]
//   attributes  scale = 0.0: 0 means 1/√d
//   outputs     o [b,s,h,d]; k_codes', k_scale', v_codes', v_scale' (in place)
ir::OpDef cached_attention_int8_def();

// The types of codes and scales for a cache of this type (attention_cache_type).
TensorType cache_codes(const TensorType& cache);
TensorType cache_scales(const TensorType& cache);

std::shared_ptr<device::Kernel> prepare_cached_attention_int8_cpu(const ir::KernelSpec& spec);
std::size_t cached_attention_int8_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
