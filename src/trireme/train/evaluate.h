#pragma once
#include <cstdint>
#include <functional>

#include "trireme/train/session.h"

namespace trireme::train {

// Mean loss over the samples of `data`: all of them, or with `batches` > 0 at most so many micro-batches, spread
// evenly.
double evaluate(Session& session, const data::Dataset& data, std::int64_t batches,
                const std::function<void(std::int64_t done, std::int64_t total)>& on_batch = {});

}  // namespace trireme::train
