#include "trireme/cli/lessons/lesson.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "trireme/cli/bench.h"
#include "trireme/core/error.h"
#include "trireme/train/schedule.h"

namespace trireme::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::array<Lesson, 10> kLessons = {{
    {"reduction", "Threads that add to one number", "docs/performance.md", teach_reduction},
    {"memory", "Where the memory of a step goes", "docs/memory.md", teach_memory},
    {"recomputation", "Activations computed twice instead of kept", "docs/rematerialisation.md", teach_recomputation},
    {"offload", "Activations that wait in a slower memory", "docs/offload.md", teach_offload},
    {"collectives", "What an all-reduce sends, and how long it takes", "docs/communication.md", teach_collectives},
    {"data-parallelism", "Ranks that share the batch", "docs/data_parallelism.md", teach_data_parallelism},
    {"servers", "Parameter servers, synchronous and not", "docs/parameter_server.md", teach_servers},
    {"tensor-parallelism", "Ranks that share every layer", "docs/tensor_parallelism.md", teach_tensor_parallelism},
    {"pipelines", "Ranks that share the depth", "docs/pipelines.md", teach_pipelines},
    {"simulator", "A cluster that is not here", "docs/simulator.md", teach_simulator},
}};

// Some text that a small model can learn a little of, the same on every machine.
std::string some_text() {
  constexpr std::array<const char*, 12> kWords = {"the", "oars",  "of",   "a",   "trireme", "move",
                                                  "in",  "three", "rows", "and", "keep",    "time"};
  std::string text;
  std::uint64_t state = 7;
  while (text.size() < 64U << 10) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    text += kWords[(state >> 33) % kWords.size()];
    text += (state >> 50) % 9 == 0 ? ".\n" : " ";
  }
  return text;
}

}  // namespace

std::span<const Lesson> lessons() { return kLessons; }

Classroom::Classroom(const train::Registry& registry) : registry_(registry) {
  std::string name = (fs::temp_directory_path() / "trireme-lesson-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("could not make a folder in {}", fs::temp_directory_path().string());
  folder_ = name;
  std::ofstream(folder_ / "text.txt") << some_text();
}

Classroom::~Classroom() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

train::Config Classroom::config(const std::vector<std::string>& settings) const {
  std::vector<std::string> all = {"model.family=gpt2",
                                  "model.layers=4",
                                  "model.width=64",
                                  "model.heads=4",
                                  "model.context=64",
                                  "data.text=" + (folder_ / "text.txt").string(),
                                  "data.holdout=0",
                                  "train.batch=8",
                                  "train.steps=100",
                                  "train.warmup=2",
                                  "parallel.mesh=dp=1",
                                  "parallel.zero=0",
                                  "memory.offload_dir=" + folder_.string(),
                                  "runtime.device=cpu",
                                  "runtime.threads=1",
                                  "output.dir=" + (folder_ / "run").string(),
                                  "output.checkpoint_every=0"};
  all.insert(all.end(), settings.begin(), settings.end());
  return train::load_config("quickstart", all, registry_.models);
}

train::Trainer Classroom::planned(const std::vector<std::string>& settings) const {
  train::TrainerOptions options;
  options.write = false;
  return {config(settings), registry_, options};
}

Trained Classroom::trained(const std::vector<std::string>& settings, int steps) const {
  constexpr int kWarmup = 2;
  train::Trainer trainer = planned(settings);
  trainer.start();
  const train::TrainConfig& c = trainer.config().train;
  data::Loader loader = trainer.batches();
  Trained result;
  std::vector<double> seconds;
  std::vector<double> exposed;
  for (int i = 0; i < kWarmup + steps; ++i) {
    const data::Batch& batch = loader.next();
    const std::uint64_t before = trainer.session().sent_bytes();
    const auto begin = std::chrono::steady_clock::now();
    const train::StepResult step = trainer.session().step(batch, i, train::learning_rate(c, i), c.seed);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result.losses.push_back(step.loss);
    result.sent = static_cast<double>(trainer.session().sent_bytes() - before);
    if (i < kWarmup) continue;
    seconds.push_back(took);
    exposed.push_back(trainer.session().step_executor().exposed_comm_seconds());
  }
  result.step = median(seconds);
  result.exposed = median(exposed);
  result.planned = trainer.compiled().arena_bytes();
  result.touched = trainer.session().highest_offset();
  result.peak = program::peak(trainer.compiled().roles.front().largest());
  result.parameters = trainer.compiled().roles.front().stored_parameters();
  return result;
}

std::string bar(double share, int width) {
  const double filled = std::clamp(share, 0.0, 1.0) * width;
  std::string text;
  int columns = static_cast<int>(filled);
  for (int i = 0; i < columns; ++i) text += "█";
  if (columns < width && filled - columns >= 0.5) {
    text += "▌";
    ++columns;
  }
  return text + std::string(static_cast<std::size_t>(width - columns), ' ');
}

const char* mark(bool exact) { return exact ? "✓" : "✗"; }

}  // namespace trireme::cli
