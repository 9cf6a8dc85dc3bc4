#include "trireme/train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <new>
#include <set>
#include <thread>

#include "trireme/compiler/saved_state.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/io/checkpoint_reader.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/optimizer.h"
#include "trireme/passes/own_momentum.h"
#include "trireme/passes/prune.h"
#include "trireme/train/load_slice.h"
#include "trireme/train/pruned_weights.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// How the trainer records in log.txt that a checkpoint was written.
constexpr std::string_view kLoggedCheckpoint = "] checkpoint of step ";

io::CheckpointReader open_checkpoint(const fs::path& run, std::int64_t step) {
  io::CheckpointReader reader(checkpoint_folder(run, step));
  if (reader.manifest().step != step)
    refuse("{}: is of step {}", (checkpoint_folder(run, step) / io::kManifestFile).string(), reader.manifest().step);
  return reader;
}

// Why the checkpoint of a step cannot be used; nothing when it can.
std::optional<std::string> fault(const fs::path& run, std::int64_t step, ThreadPool& pool) {
  try {
    open_checkpoint(run, step).verify(pool);
    return std::nullopt;
  } catch (const std::exception& e) {
    return e.what();
  }
}

int reading_threads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U)); }

using Copied = std::function<void(std::size_t shard, std::size_t tensor)>;

void write_shards(const fs::path& aside, io::CheckpointManifest& manifest, std::span<const SavedShard> shards,
                  const Copied& copied) {
  for (std::size_t s = 0; s < shards.size(); ++s)
    io::write_shard(
        aside, shards[s].file, shards[s].tensors, shards[s].staging,
        [&](std::size_t tensor) {
          if (copied) copied(s, tensor);
        },
        manifest);
}

void send_text(comm::Communicator& world, const std::string& text, int to) {
  const std::uint64_t size = text.size();
  world.send(std::as_bytes(std::span(&size, 1)), to);
  world.send(std::as_bytes(std::span(text)), to);
}

std::string receive_text(comm::Communicator& world, int from) {
  std::uint64_t size = 0;
  world.recv(std::as_writable_bytes(std::span(&size, 1)), from);
  std::string text(size, '\0');
  world.recv(std::as_writable_bytes(std::span(text)), from);
  return text;
}

// Adds what other processes have written. Their manifests do not tile the tensors by themselves, so they
// come as fragments.
void join(io::CheckpointManifest& manifest, io::CheckpointManifest part) {
  manifest.files.merge(part.files);
  for (io::CheckpointTensor& tensor : part.tensors) {
    const auto known = std::find_if(manifest.tensors.begin(), manifest.tensors.end(),
                                    [&](const io::CheckpointTensor& t) { return t.name == tensor.name; });
    if (known == manifest.tensors.end())
      manifest.tensors.push_back(std::move(tensor));
    else
      known->slices.insert(known->slices.end(), tensor.slices.begin(), tensor.slices.end());
  }
}

// Gathers the fragments at the first process. A failure of any is a failure of all, with its reason.
void bring_together(io::CheckpointManifest& manifest, const std::string& failure, comm::Communicator& world) {
  std::string verdict = failure;
  if (world.rank() > 0) {
    send_text(world, failure, 0);
    if (failure.empty()) send_text(world, io::fragment_text(manifest), 0);
    verdict = receive_text(world, 0);
  } else {
    for (int rank = 1; rank < world.size(); ++rank) {
      const std::string theirs = receive_text(world, rank);
      if (theirs.empty()) join(manifest, io::parse_fragment(receive_text(world, rank)));
      if (verdict.empty() && !theirs.empty()) verdict = fmt::format("rank {}: {}", rank, theirs);
    }
    for (int rank = 1; rank < world.size(); ++rank) send_text(world, verdict, rank);
  }
  if (!verdict.empty()) fail("{}", verdict);
}

void write_aside(const fs::path& aside, io::CheckpointManifest& manifest, std::span<const SavedShard> shards,
                 const Copied& copied, comm::Communicator* world) {
  const bool leads = world == nullptr || world->rank() == 0;
  std::string failure;
  const auto attempt = [&](const auto& action) {
    if (world == nullptr) return action();
    try {
      if (failure.empty()) action();
    } catch (const comm::Aborted&) {
      throw;
    } catch (const std::exception& e) {
      failure = e.what();
    }
  };
  if (leads)
    attempt([&] {
      fs::remove_all(aside);
      fs::create_directories(aside);
    });
  if (world != nullptr) world->barrier();
  attempt([&] { write_shards(aside, manifest, shards, copied); });
  if (world != nullptr) bring_together(manifest, failure, *world);
  if (!leads) return;
  write_file_atomically((aside / io::kManifestFile).string(), io::manifest_text(manifest));
}

// For sessions that were compiled without staging.
class OwnStaging {
 public:
  OwnStaging() : memory_(::operator new (kBytes, std::align_val_t{io::kStagingAlignment})) {}
  ~OwnStaging() { ::operator delete (memory_, std::align_val_t{io::kStagingAlignment}); }
  OwnStaging(const OwnStaging&) = delete;
  OwnStaging& operator=(const OwnStaging&) = delete;
  std::span<std::byte> bytes() { return {static_cast<std::byte*>(memory_), kBytes}; }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* memory_;
};

}  // namespace

io::CheckpointManifest describe_checkpoint(const Config& config, std::int64_t step) {
  io::CheckpointManifest manifest;
  manifest.step = step;
  manifest.samples = step * config.train.batch;
  manifest.order = config.data.order.text();
  manifest.seed = config.train.seed;
  manifest.config = to_toml(config);
  return manifest;
}

std::string shard_file(std::size_t rank) {
  return rank == 0 ? "state.safetensors" : fmt::format("state-{}.safetensors", rank);
}

namespace {

// Bytes of rows that a rank stores with padding between them: from byte `offset` of the rows without it.
void read_padded(Rank& rank, const ir::State& state, const ir::StoredRows& stored, std::size_t offset,
                 std::span<std::byte> out) {
  const std::size_t element = size_of(state.type.dtype);
  const std::size_t pitch = static_cast<std::size_t>(ir::row_pitch(state)) * element;
  const std::size_t width = static_cast<std::size_t>(stored.rows.extent[1]) * element;
  while (!out.empty()) {
    const std::size_t row = offset / width;
    const std::size_t count = std::min(out.size(), width - offset % width);
    rank.read_state(state.name, (static_cast<std::size_t>(stored.first) + row) * pitch + offset % width,
                    out.first(count));
    out = out.subspan(count);
    offset += count;
  }
}

io::ShardTensor saved_tensor(Rank& rank, const ir::State& state, const ir::StoredRows& stored, int number) {
  const TensorType whole{state.type.dtype, state.global_shape()};
  const bool all = stored.rows.extent.elements() == whole.elements();
  const ir::Slice slice = all ? ir::all_of(whole.shape) : stored.rows;
  const std::int64_t pitch = ir::row_pitch(state);
  const std::size_t first = static_cast<std::size_t>(stored.first * pitch) * size_of(whole.dtype);
  io::ShardTensor tensor{state.name, whole,       ir::name_of(state.category), slice.start, slice.extent, {}, {},
                         number,     state.sparse};
  if (stored.rows.extent.rank() == 2 && stored.rows.extent[1] != pitch)
    tensor.read = [&rank, &state, stored](std::size_t offset, std::span<std::byte> out) {
      read_padded(rank, state, stored, offset, out);
    };
  else if (const std::span<std::byte> resident = rank.resident_state(state.name); !resident.empty())
    tensor.bytes = resident.subspan(first, TensorType{whole.dtype, slice.extent}.bytes());
  else
    tensor.read = [&rank, &name = state.name, first](std::size_t offset, std::span<std::byte> out) {
      rank.read_state(name, first + offset, out);
    };
  return tensor;
}

}  // namespace

std::vector<SavedShard> saved_shards(Session& session) {
  std::vector<SavedShard> shards;
  for (std::size_t r = 0; r < session.ranks().size(); ++r) {
    Rank& rank = session.rank(r);
    const std::vector<ir::State>& states = rank.role().module.states;
    SavedShard shard{r, shard_file(static_cast<std::size_t>(rank.number())), {}, {}, rank.staging()};
    for (std::size_t s = 0; s < states.size(); ++s) {
      int slices = 0;
      for (const ir::StoredRows& stored :
           compiler::saved_rows(session.compiled(), rank.number(), static_cast<ir::StateId>(s))) {
        shard.tensors.push_back(saved_tensor(rank, states[s], stored, slices++));
        shard.states.push_back(static_cast<ir::StateId>(s));
      }
    }
    if (!shard.tensors.empty()) shards.push_back(std::move(shard));
  }
  return shards;
}

std::uint64_t write_checkpoint(const fs::path& run, io::CheckpointManifest manifest, std::span<const SavedShard> shards,
                               const Copied& copied, comm::Communicator* world) {
  const fs::path target = checkpoint_folder(run, manifest.step);
  const fs::path aside = unfinished_folder(run, manifest.step);
  const bool leads = world == nullptr || world->rank() == 0;
  std::error_code ignored;
  try {
    write_aside(aside, manifest, shards, copied, world);
    if (!leads) return 0;
    put_in_place(run, manifest.step);
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(aside, ignored);
    fail("the checkpoint {} cannot be written: {}", target.string(), e.code().message());
  } catch (Error& e) {
    fs::remove_all(aside, ignored);
    throw Error(Error::Kind::failure,
                e.within(fmt::format("the checkpoint {} cannot be written", target.string())).message());
  }
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  return bytes;
}

void save_checkpoint(const fs::path& run, Session& session, const Config& config, std::int64_t step,
                     std::int64_t keep) {
  std::unique_ptr<OwnStaging> own;
  std::vector<SavedShard> shards = saved_shards(session);
  for (SavedShard& shard : shards) {
    if (!shard.staging.empty()) continue;
    if (!own) own = std::make_unique<OwnStaging>();
    shard.staging = own->bytes();
  }
  write_checkpoint(run, describe_checkpoint(config, step), shards, {}, session.world());
  if (session.first_rank() == 0) prune_checkpoints(run, step, keep);
}

namespace {

// Checkpoints may lie behind a link, on a disk that is not there today: that is not the same as none.
void check_reachable(const fs::path& run) {
  const fs::path folder = run / "checkpoints";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return;
  if (fs::is_symlink(folder, error) && !fs::exists(folder, error))
    refuse("{} is a link to {}, which is not there", folder.string(), fs::read_symlink(folder, error).string());
  const fs::directory_iterator readable(folder, error);
  if (error) refuse("{} cannot be read: {}", folder.string(), error.message());
}

// The last checkpoint that log.txt records.
std::optional<std::int64_t> logged_checkpoint(const fs::path& run) {
  std::optional<std::int64_t> step;
  std::ifstream in(run / "log.txt");
  for (std::string line; std::getline(in, line);) {
    const std::size_t at = line.find(kLoggedCheckpoint);
    std::int64_t number = 0;
    if (at == std::string::npos || !line.starts_with('[')) continue;
    const char* first = line.data() + at + kLoggedCheckpoint.size();
    if (std::from_chars(first, line.data() + line.size(), number).ec == std::errc()) step = number;
  }
  return step;
}

}  // namespace

std::optional<std::int64_t> newest_checkpoint(const fs::path& run, const LogSink& sink,
                                              std::vector<std::int64_t>* skipped) {
  check_reachable(run);
  ThreadPool pool(reading_threads());
  std::vector<std::string> unusable;
  for (const std::int64_t step : checkpoint_steps(run)) {
    const auto wrong = fault(run, step, pool);
    if (!wrong) {
      for (const std::string& one : unusable) log(sink, LogLevel::warning, "skipping {}", one);
      return step;
    }
    unusable.push_back(fmt::format("{}: {}", checkpoint_folder(run, step).string(), *wrong));
    if (skipped != nullptr) skipped->push_back(step);
  }
  if (unusable.size() == 1) refuse("the only checkpoint cannot be used: {}", unusable.front());
  if (!unusable.empty())
    refuse("none of the {} checkpoints can be used: {}", unusable.size(), fmt::join(unusable, "; "));
  if (const auto step = logged_checkpoint(run))
    refuse("{}: there is no checkpoint any more, and log.txt records one of step {}", (run / "checkpoints").string(),
           *step);
  return std::nullopt;
}

bool has_checkpoint(const fs::path& run, std::int64_t step) {
  ThreadPool pool(reading_threads());
  return !fault(run, step, pool);
}

namespace {

void check_is_saved(const fs::path& run, std::int64_t step) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  if (std::find(steps.begin(), steps.end(), step) == steps.end())
    refuse("{} has no checkpoint of step {}; there {} {}", run.string(), step, steps.size() == 1 ? "is one of" : "are",
           steps.empty() ? "none" : fmt::format("{}", fmt::join(steps.rbegin(), steps.rend(), ", ")));
}

// Of weights that come without one.
bool set_mask(Rank& rank, const ir::State& mask, const io::CheckpointReader& reader) {
  const auto parameter = passes::masked_parameter(mask.name);
  const io::CheckpointTensor* weight = parameter ? reader.find(*parameter) : nullptr;
  if (weight == nullptr || weight->type != TensorType{mask.type.dtype, mask.global_shape()}) return false;
  return set_mask_from(rank, mask,
                       [&](const ir::Slice& slice, std::span<std::byte> out) { reader.read(*weight, slice, out); });
}

void scale(std::span<std::byte> values, double factor) {
  for (; values.size() >= sizeof(float); values = values.subspan(sizeof(float))) {
    float value = 0;
    std::memcpy(&value, values.data(), sizeof value);
    value = static_cast<float>(value * factor);
    std::memcpy(values.data(), &value, sizeof value);
  }
}

}  // namespace

void check_checkpoint(const fs::path& run, std::int64_t step) {
  check_is_saved(run, step);
  ThreadPool pool(reading_threads());
  open_checkpoint(run, step).verify(pool);
}

void load_checkpoint(const fs::path& run, std::int64_t step, Session& session, const LoadOptions& options) {
  check_is_saved(run, step);
  const io::CheckpointReader reader = open_checkpoint(run, step);
  std::set<std::string> fresh;
  std::set<std::string> momenta;
  std::set<std::string> masked;
  const auto& prune = session.compiled().plan.prune;
  const bool prunes_elements = prune && !prune->parameters.empty();
  // Each process reads what its own ranks store.
  for (const auto& rank : session.ranks())
    for (const ir::State& state : rank->role().module.states) {
      if (!compiler::is_saved(state)) continue;
      const io::CheckpointTensor* found = reader.find(state.name);
      // Imported weights come without an optimizer, which before the first step is as it starts.
      if (step == 0 && state.category == ir::Category::optimizer && found == nullptr) {
        if (prunes_elements && set_mask(*rank, state, reader)) masked.insert(state.name);
        continue;
      }
      // Nor has a run in another precision a loss scale.
      if (state.category == ir::Category::scalars && found == nullptr) continue;
      const TensorType whole{state.type.dtype, state.global_shape()};
      if (passes::is_compression_state(state) && (found == nullptr || found->type != whole)) {
        (passes::is_own_momentum(state) ? momenta : fresh).insert(state.name);
        continue;
      }
      const io::CheckpointTensor& tensor = reader.at(state.name);
      if (tensor.type != whole)
        refuse("{}: '{}' is {}, the model has {}", checkpoint_folder(run, step).string(), state.name, tensor.type.str(),
               whole.str());
      const bool scaled = options.variance_scale != 1 && passes::is_variance(state);
      load_slice(*rank, state, [&](const ir::Slice& slice, std::span<std::byte> out) {
        reader.read(tensor, slice, out);
        if (scaled) scale(out, options.variance_scale);
      });
    }
  if (!momenta.empty())
    log(options.log, LogLevel::warning,
        "SGD's momentum starts again from zero: each of {} ranks has one of its own when gradients are compressed this "
        "way, and the checkpoint has {}",
        session.compiled().mesh.ranks(),
        reader.find(passes::shared_momentum(*momenta.begin())) != nullptr ? "the run's" : "those of other ranks");
  if (!fresh.empty())
    log(options.log, LogLevel::info,
        "{} tensors of gradient compression start anew: the checkpoint has none for {} ranks compressing this way",
        fresh.size(), session.compiled().mesh.ranks());
  if (!masked.empty()) log(options.log, LogLevel::info, "{} weights come pruned: their zeros stay", masked.size());
  session.refresh_copies();
}

}  // namespace trireme::train
