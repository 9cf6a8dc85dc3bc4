#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/core/log.h"
#include "trireme/io/checkpoint_manifest.h"
#include "trireme/io/shard_writer.h"
#include "trireme/train/checkpoint_folders.h"
#include "trireme/train/session.h"

namespace trireme::train {

// A checkpoint (train/checkpoint_folders.h says where it lies) is safetensors files and the manifest that describes
// them (io/checkpoint_manifest.h).

// What a checkpoint after `step` updates says about the run; tensors and files are not filled in.
io::CheckpointManifest describe_checkpoint(const Config& config, std::int64_t step);

// What a rank saves: its parts of what is kept in parts, and an equal share of what all ranks have.
struct SavedShard {
  std::size_t rank = 0;
  std::string file;
  std::vector<io::ShardTensor> tensors;
  std::vector<ir::StateId> states;  // of the tensors
  std::span<std::byte> staging;
};
std::string shard_file(std::size_t rank);
std::vector<SavedShard> saved_shards(Session& session);

// Writes a checkpoint, shard after shard, each by way of its staging; `copied` as in io::write_shard. It takes the
// place of one of that step that is there, which until then stays as it was. Gives the bytes written. With `world`,
// every process writes its own shards, and the first puts the checkpoint together: collective.
std::uint64_t write_checkpoint(const std::filesystem::path& run, io::CheckpointManifest manifest,
                               std::span<const SavedShard> shards,
                               const std::function<void(std::size_t shard, std::size_t tensor)>& copied,
                               comm::Communicator* world = nullptr);
// Both, before returning. Training writes its own in the background: train/checkpoint_writer.h.
void save_checkpoint(const std::filesystem::path& run, Session& session, const Config& config, std::int64_t step,
                     std::int64_t keep);

// The newest checkpoint that is complete and has all its checksums; nothing where the run has never had one. Says on
// `log` which folders were skipped and why, and lists their steps in `skipped`. Refuses, naming each and why, where the
// run has had checkpoints and none can be used.
std::optional<std::int64_t> newest_checkpoint(const std::filesystem::path& run, const LogSink& log,
                                              std::vector<std::int64_t>* skipped = nullptr);

// Whether there is a checkpoint of that step that is complete and has all its checksums.
bool has_checkpoint(const std::filesystem::path& run, std::int64_t step);

// Refuses a checkpoint that is damaged anywhere, also in what the caller is not going to read, and a step that was not
// saved.
void check_checkpoint(const std::filesystem::path& run, std::int64_t step);

struct LoadOptions {
  LogSink log = {};
  double variance_scale = 1;  // of AdamW (train/compression.h)
};
// Sets the session's state from the checkpoint of `step`. Refuses a step that was not saved, damage, and a checkpoint
// whose tensors are not this model's. What each rank keeps for itself alone stays as it starts, and `log` says so,
// where the checkpoint has none for this number of ranks.
void load_checkpoint(const std::filesystem::path& run, std::int64_t step, Session& session,
                     const LoadOptions& options = {});

}  // namespace trireme::train
