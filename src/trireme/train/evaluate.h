#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "trireme/core/error.h"
#include "trireme/train/session.h"

namespace trireme::train {

// Held-out data cannot be read, by this process or another: all of them throw it, with the reason of the first.
class UnreadableData : public SharedFailure {
 public:
  using SharedFailure::SharedFailure;
};

// Over the samples of `data`: all of them, or with `samples` > 0 at most so many, spread evenly. How the rows
// are cut into micro-batches does not choose them. `step` updates were done before. Where a loss is not finite the
// values of its rows are looked at (Evaluation::bad_input). Collective; throws UnreadableData.
Evaluation evaluate(Session& session, const data::Dataset& data, std::int64_t samples,
                    const std::function<void(std::int64_t done, std::int64_t total)>& on_batch = {},
                    std::int64_t step = 0);

// Fails, on all ranks, where a value of the held-out data made the loss not finite, and names it.
void require_good_inputs(const Evaluation& evaluation);

// "256 of 8,030 samples", "all 96 samples": what an evaluation has looked at.
std::string samples_text(std::int64_t samples, std::int64_t available);

}  // namespace trireme::train
