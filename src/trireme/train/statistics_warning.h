#pragma once
#include <string>
#include <vector>

#include "trireme/compiler/compiled.h"

namespace trireme::train {

// Whether a step has batch norms, which normalise by the rows of a micro-batch.
bool has_batch_norms(const compiler::Compiled& c);

// What to say of batch norms whose micro-batches have so few rows that little can be learned; empty: nothing.
std::vector<std::string> statistics_warnings(const compiler::Compiled& c);

}  // namespace trireme::train
