#pragma once
#include <string>
#include <vector>

#include "trireme/cli/equal_losses.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

// The keys by which the ranks of a run compute something else than one rank does.
std::vector<std::string> other_mathematics(const train::Trainer& trainer);

// Several ranks must train like one: the first steps of a finished run again, on one rank. Where the losses differ by
// more than their precision explains, the one rank is asked how much rounding alone changes its own
// (equal_losses.h). The text is a line; a run that cannot be replayed, or computes something else by design, is `open`.
Verdict replay(const train::Trainer& several, const train::Outcome& outcome, std::int64_t steps,
               const train::Registry& registry);

}  // namespace trireme::cli
