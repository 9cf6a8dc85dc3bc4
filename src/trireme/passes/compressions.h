#pragma once
#include <functional>
#include <string>
#include <vector>

#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/gradient_sums.h"

// The kinds of CompressGradients: each says how the sums of an update graph are made.
namespace trireme::passes {

// Fewer elements than this travel as they are.
inline constexpr std::int64_t kSmallGradient = 256;

// What is summed instead of a gradient's terms, where it is not the terms themselves.
struct Term {
  const GradientSums::Sum* sum;
  ir::ValueId value;  // each rank's
  ir::ValueId unit;   // what it is scaled by; kNone: nothing
  TensorType type;    // of the sum
};
// Each term's sum, by packed chunks.
std::vector<ir::ValueId> sum_in_chunks(GradientSums& sums, const CompressGradients::Options& options,
                                       const std::vector<Term>& terms);

void compress_in_chunks(GradientSums& sums, const CompressGradients::Options& options);
void compress_signs(GradientSums& sums, const CompressGradients::Options& options);
void compress_low_rank(GradientSums& sums, const CompressGradients::Options& options);
// `all`: every element is taken, and nothing waits.
void compress_largest(GradientSums& sums, const CompressGradients::Options& options, bool all);
void compress_momentum(GradientSums& sums, const CompressGradients::Options& options);

}  // namespace trireme::passes
