#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "trireme/train/compile.h"

namespace trireme::train {

// What a saving would give for a model: its programs are compiled, nothing is run.
struct WhatIf {
  std::vector<std::string> settings;  // "memory.remat=sqrt"; none: as configured
  std::size_t peak = 0;               // bytes
  double time = 0;                    // of a step, as a multiple of the configured one's, predicted
  bool changes_numbers = false;       // another precision or rounding: not the same losses to the bit
  std::string refused;                // why it does not apply; the rest is then empty
  bool tried = true;                  // false: it was left out
};

// The smallest micro-batches, in rows of one replica and no larger than configured, with which a step has at most so
// many instructions, as predicted from the configured one.
std::int64_t smallest_micro_batch(const Config& config, const Compiled& configured, double instructions);

// As `configured`, then each saving alone that is not on already, then the best together; compiled concurrently, by as
// many threads as `options` says. `on_one` is called for each as it is about to be compiled, by one thread at a time.
// The one that goes furthest is compiled in any case, with micro-batches of smallest_micro_batch; of the others no more
// than have `instructions` with it, as predicted from the configured ones and the number of micro-batches: the same
// ones on every machine.
std::vector<WhatIf> what_if(const Config& config, const Registry& registry, const CompileOptions& options,
                            const Compiled& configured,
                            const std::function<void(std::size_t done, std::size_t total)>& on_one = {},
                            double instructions = std::numeric_limits<double>::infinity());

// For each way to recompute, and to offload where that is needed, that may be quicker than what fits of `known` (of
// what_if), the largest micro-batches that fit into `limit` with it. Where nothing of `known` does, larger ones than
// configured alone. No more are compiled than have `instructions`, predicted likewise.
struct MicroBatchesThatFit {
  std::vector<WhatIf> found;
  bool all_tried = true;  // false: there were more instructions, and larger micro-batches than these may fit
};
MicroBatchesThatFit largest_micro_batches(const Config& config, const Registry& registry, const CompileOptions& options,
                                          const Compiled& configured, std::uint64_t limit,
                                          const std::vector<WhatIf>& known, double instructions);

// Where nothing of `known` (of what_if) fits into `limit`: savings of several kinds together, near what needs least of
// it, until one fits or none is smaller. No more are compiled than have `instructions`, predicted likewise; none where
// what goes furthest needs more than twice the limit.
struct CombinedSavings {
  std::vector<WhatIf> found;  // those that were tried
  bool all_tried = true;      // false: there were more instructions
};
CombinedSavings combine_savings(const Config& config, const Registry& registry, const CompileOptions& options,
                                const Compiled& configured, std::uint64_t limit, const std::vector<WhatIf>& known,
                                double instructions);

}  // namespace trireme::train
