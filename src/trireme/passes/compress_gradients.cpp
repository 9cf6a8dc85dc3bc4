#include "trireme/passes/compress_gradients.h"

#include <algorithm>
#include <array>

#include "trireme/core/error.h"
#include "trireme/passes/compressions.h"
#include "trireme/passes/own_momentum.h"

namespace trireme::passes {

bool is_compression_state(const ir::State& state) {
  constexpr std::array<std::string_view, 5> kEndings = {"/residual", "/residual_of_sum", "/basis", "/unsent",
                                                        "/own_momentum"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return state.name.ends_with(ending); });
}

void CompressGradients::run(ir::Module& module) const {
  if (module.mesh.size_of(options_.axis) < 2) return;
  const bool own = options_.kind == Kind::largest || options_.kind == Kind::onebit;  // momenta
  const bool warms = options_.warmup > 0 && (own || options_.kind == Kind::momentum);
  if (own) own_momenta(module, options_.axis);
  if (warms) {
    ir::Graph warm = module.graph("update");
    warm.name = kWarmUpdate;
    module.graphs.push_back(std::move(warm));
  }
  if (warms && own) {
    GradientSums sums(module, kWarmUpdate, options_.axis, options_.stages_apart);
    compress_largest(sums, options_, true);
    sums.finish();
  }
  GradientSums sums(module, "update", options_.axis, options_.stages_apart);
  switch (options_.kind) {
    case Kind::bf16:
    case Kind::int8: compress_in_chunks(sums, options_); break;
    case Kind::onebit: compress_signs(sums, options_); break;
    case Kind::low_rank: compress_low_rank(sums, options_); break;
    case Kind::largest: compress_largest(sums, options_, false); break;
    case Kind::momentum: compress_momentum(sums, options_); break;
  }
  sums.finish();
}

}  // namespace trireme::passes
