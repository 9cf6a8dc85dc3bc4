#include "trireme/train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/io/atomic_file.h"
#include "trireme/io/checkpoint_reader.h"
#include "trireme/train/saved_state.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".partial";
constexpr const char* kStateFile = "state.safetensors";  // of one rank; several will have one each

// The step of "step-00000100"; nothing for other names.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

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

void write_aside(const fs::path& aside, io::CheckpointManifest& manifest, std::span<const io::ShardTensor> tensors,
                 std::span<std::byte> staging, const std::function<void(std::size_t)>& copied) {
  fs::remove_all(aside);
  fs::create_directories(aside);
  io::write_shard(aside, kStateFile, tensors, staging, copied, manifest);
  io::write_file_atomically((aside / io::kManifestFile).string(), io::manifest_text(manifest));
}

// A folder that is being removed is no checkpoint any more: should that be cut short, none is found half gone.
void remove_checkpoint(const fs::path& folder) {
  const fs::path aside = folder.string() + std::string(kUnfinished);
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  fs::rename(folder, aside, ignored);
  fs::remove_all(aside, ignored);
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

fs::path checkpoint_folder(const fs::path& run, std::int64_t step) {
  return run / "checkpoints" / fmt::format("{}{:08}", kPrefix, step);
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& run) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", error))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

io::CheckpointManifest describe_checkpoint(const Config& config, std::int64_t step) {
  io::CheckpointManifest manifest;
  manifest.step = step;
  manifest.samples = step * config.train.batch;
  manifest.order = config.data.order;
  manifest.seed = config.train.seed;
  manifest.config = to_toml(config);
  return manifest;
}

std::vector<io::ShardTensor> saved_tensors(Session& session) {
  std::vector<io::ShardTensor> tensors;
  for (const ir::State& state : session.compiled().module.states) {
    if (!is_saved(state)) continue;
    Shape start = state.type.shape;
    for (int d = 0; d < start.rank(); ++d) start[d] = 0;
    tensors.push_back({state.name,
                       state.type,
                       ir::name_of(state.category),
                       start,
                       state.type.shape,
                       session.resident_state(state.name),
                       {}});
    if (state.tier != 0)
      tensors.back().read = [&session, &name = state.name](std::size_t offset, std::span<std::byte> out) {
        session.read_state(name, offset, out);
      };
  }
  return tensors;
}

std::uint64_t write_checkpoint(const fs::path& run, io::CheckpointManifest manifest,
                               std::span<const io::ShardTensor> tensors, std::span<std::byte> staging,
                               const std::function<void(std::size_t)>& copied) {
  const fs::path target = checkpoint_folder(run, manifest.step);
  const fs::path aside = target.string() + std::string(kUnfinished);
  // The same step gives the same state.
  if (fs::exists(target)) {
    ThreadPool pool(reading_threads());
    if (!fault(run, manifest.step, pool)) return 0;
  }
  std::error_code ignored;
  try {
    write_aside(aside, manifest, tensors, staging, copied);
    fs::remove_all(target);
    fs::rename(aside, target);
    io::sync_folder(target.parent_path().string());
    io::sync_folder(run.string());  // `checkpoints` itself may be new
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(aside, ignored);
    fail("the checkpoint {} cannot be written: {}", target.string(), e.code().message());
  } catch (Error& e) {
    fs::remove_all(aside, ignored);
    throw Error(Error::Kind::failure,
                e.within(fmt::format("the checkpoint {} cannot be written", target.string())).message());
  }
  return manifest.files.at(kStateFile).bytes;
}

void prune_checkpoints(const fs::path& run, std::int64_t step, std::int64_t keep,
                       std::span<const std::int64_t> broken) {
  std::int64_t kept = 0;
  for (const std::int64_t other : checkpoint_steps(run)) {
    if (other > step) continue;
    const bool bad = other != step && std::find(broken.begin(), broken.end(), other) != broken.end();
    if (bad || ++kept > std::max<std::int64_t>(keep, 1)) remove_checkpoint(checkpoint_folder(run, other));
  }
}

void save_checkpoint(const fs::path& run, Session& session, const Config& config, std::int64_t step,
                     std::int64_t keep) {
  std::optional<OwnStaging> own;
  std::span<std::byte> staging = session.staging();
  if (staging.empty()) staging = own.emplace().bytes();
  write_checkpoint(run, describe_checkpoint(config, step), saved_tensors(session), staging, {});
  prune_checkpoints(run, step, keep);
}

void remove_unfinished(const fs::path& run) {
  std::vector<fs::path> unfinished;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", ignored))
    if (std::string name = entry.path().filename().string(); name.ends_with(kUnfinished)) {
      name.resize(name.size() - kUnfinished.size());
      if (step_of(name)) unfinished.push_back(entry.path());
    }
  for (const fs::path& path : unfinished) fs::remove_all(path, ignored);
}

std::optional<std::int64_t> newest_checkpoint(const fs::path& run, const LogSink& sink,
                                              std::vector<std::int64_t>* skipped) {
  ThreadPool pool(reading_threads());
  for (const std::int64_t step : checkpoint_steps(run)) {
    const auto wrong = fault(run, step, pool);
    if (!wrong) return step;
    log(sink, LogLevel::warning, "skipping {}: {}", checkpoint_folder(run, step).string(), *wrong);
    if (skipped != nullptr) skipped->push_back(step);
  }
  return std::nullopt;
}

void load_checkpoint(const fs::path& run, std::int64_t step, Session& session) {
  if (const std::vector<std::int64_t> steps = checkpoint_steps(run);
      std::find(steps.begin(), steps.end(), step) == steps.end())
    refuse("{} has no checkpoint of step {}; there {} {}", run.string(), step, steps.size() == 1 ? "is one of" : "are",
           steps.empty() ? "none" : fmt::format("{}", fmt::join(steps.rbegin(), steps.rend(), ", ")));
  const io::CheckpointReader reader = open_checkpoint(run, step);
  for (const ir::State& state : session.compiled().module.states) {
    if (!is_saved(state)) continue;
    // Imported weights come without an optimizer, which before the first step is as it starts.
    if (step == 0 && state.category == ir::Category::optimizer && reader.find(state.name) == nullptr) continue;
    // Nor has a run in another precision a loss scale.
    if (state.category == ir::Category::scalars && reader.find(state.name) == nullptr) continue;
    const io::CheckpointTensor& tensor = reader.at(state.name);
    if (tensor.type != state.type)
      refuse("{}: '{}' is {}, the model has {}", checkpoint_folder(run, step).string(), state.name, tensor.type.str(),
             state.type.str());
    if (state.tier == 0) {
      reader.read(tensor, session.resident_state(state.name));
      continue;
    }
    std::vector<std::byte> bytes(state.type.bytes());
    reader.read(tensor, bytes);
    session.write_state(state.name, 0, bytes);
  }
  session.derive();
}

}  // namespace trireme::train
