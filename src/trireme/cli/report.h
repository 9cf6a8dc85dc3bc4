#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/program/memory_plan.h"
#include "trireme/train/trainer.h"
#include "trireme/train/what_if.h"

namespace trireme::cli {

// "trireme VERSION · 2 cores (AVX-512, bf16) · no GPU · built-in quickstart"
std::string headline(const train::Config& config);
// The lines `data`, `model`, `plan`, `check`, `memory` that precede training.
std::string plan_text(const train::Trainer& trainer);
// "weights 3.2 · gradients 3.2 · optimizer 6.4 · activations 8.9 MiB"
std::string categories_text(const program::PeakReport& peak);

// The memory plan as a table, a curve over the step, and the largest tensors alive at the peak.
std::string memory_text(const train::Trainer& trainer);
// What the run's process takes of the host's memory, at most: with what is outside the plan, and without a checkpoint
// that it is resumed from.
std::uint64_t resident_bound(const train::Trainer& trainer, bool resumed = false);
// What the system says of the process, next to that bound: ✗ where it took more.
std::string resident_text(std::uint64_t measured, std::uint64_t bound);
// What the run's ranks take of a GPU that they share, at most: their arenas, and what driver and libraries take there.
std::uint64_t gpu_bound(const train::Trainer& trainer);
// The same for scripts, with what savings would give where that was asked for.
std::string memory_json(const train::Trainer& trainer, const std::vector<train::WhatIf>& savings = {});
// What savings would give, one line each.
std::string savings_text(const std::vector<train::WhatIf>& savings);

// What training came to: loss curve, memory, time.
std::string summary_text(train::Trainer& trainer, const train::Outcome& outcome);

// Text with what a terminal could take for a command, and what is not UTF-8, made visible; lines stay.
std::string printable(const std::string& text);

// Text with control characters made visible, cut to a width; for one line of a terminal.
std::string one_line(const std::string& text, std::size_t width);

}  // namespace trireme::cli
