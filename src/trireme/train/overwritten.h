#pragma once
#include <array>
#include <filesystem>
#include <string_view>

#include "trireme/train/config.h"

namespace trireme::train {

// What overwriting removes of a run folder. config.toml is replaced.
inline constexpr auto kOverwritten = std::to_array<std::string_view>(
    {"checkpoints", "metrics.jsonl", "log.txt", "run.json", "plan.toml", "algorithms.txt"});

// Whether `input`, or what a link in it leads to, is gone when the run in `folder` has been overwritten.
bool is_overwritten(const std::filesystem::path& folder, const std::filesystem::path& input);

// Refuses, by key, to write a run where its own inputs are: a teacher or weights to start from in that folder, and data
// that writing would replace.
void check_inputs_stay(const std::filesystem::path& folder, const Config& config);

}  // namespace trireme::train
