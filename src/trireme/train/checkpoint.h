#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trireme/core/log.h"
#include "trireme/train/session.h"

namespace trireme::train {

// checkpoints/step-00000100/ with state.safetensors (every saved state variable by its global name) and manifest.json.
// Complete or absent: written aside, synced, renamed; one that is there already stays, unless it is broken. Older ones
// beyond `keep` are removed afterwards.
void save_checkpoint(const std::filesystem::path& run, Session& session, std::int64_t step, std::int64_t keep);

// Newest complete checkpoint's step, or nothing. Says on `log` which folders were skipped and why.
std::optional<std::int64_t> newest_checkpoint(const std::filesystem::path& run, const LogSink& log);

// Sets the session's state from the checkpoint of `step`. Refuses a step that was not saved, and a checkpoint whose
// tensors are not this model's.
void load_checkpoint(const std::filesystem::path& run, std::int64_t step, Session& session);

}  // namespace trireme::train
