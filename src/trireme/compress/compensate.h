#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/core/thread_pool.h"
#include "trireme/ops/quantize/codes.h"

namespace trireme::compress {

// Codes of a weight W [n,k] whose layer reads inputs with the second moments H = Σ xᵀx [k,k], chosen so that the
// layer's output changes least, ‖(W − Ŵ)·X‖² = tr (W − Ŵ)·H·(W − Ŵ)ᵀ, instead of W itself (GPTQ: Frantar et al. 2022).
//
// With H = R·Rᵀ, R upper triangular, that is ‖(W − Ŵ)·R‖²: its column i depends on the errors of columns up to i alone.
// So columns are rounded one after another, those with the largest inputs first, each after it has taken over what the
// errors of those before it have left in its column:
//
//   ŵᵢ = round(wᵢ + Σ_{j<i} (wⱼ − ŵⱼ)·Rⱼᵢ / Rᵢᵢ)
//
// Scales are fixed before, from W: of some that clip the largest elements a little, the one with the least error under
// the diagonal of H. One percent of H's mean diagonal is added to it, so that inputs which never vary do no harm.
//
// An early column is rounded before it is known what later ones can take over. So `sweeps` rounds follow, of which none
// makes the change of the output larger: each scale becomes the best for its codes, then each code the best among all
// other codes (QuantEase: Behdin et al. 2023).
inline constexpr int kSweeps = 3;
void quantize_compensated(std::span<const float> weight, std::int64_t n, std::int64_t k, const ops::CodeFormat& format,
                          std::span<const float> moments, ThreadPool& pool, std::byte* codes, float* scales,
                          int sweeps = kSweeps);

// ‖(W − Ŵ)·X‖ / ‖W·X‖ under the moments H.
double output_error(std::span<const float> weight, std::span<const float> rounded, std::int64_t n, std::int64_t k,
                    std::span<const float> moments, ThreadPool& pool);

}  // namespace trireme::compress
