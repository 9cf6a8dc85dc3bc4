#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/program/memory_plan.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

// What a small run came to. Seconds are medians over the steps after the first two.
struct Trained {
  std::vector<double> losses;
  double step = 0;
  double exposed = 0;       // communication that a rank waited for
  double sent = 0;          // bytes of the last step, of the rank that sent most
  std::size_t planned = 0;  // bytes, of the rank that needs most
  std::size_t touched = 0;  // the largest end offset handed to a kernel
  program::PeakReport peak;
  std::uint64_t parameters = 0;  // that the first rank stores
};

// What a lesson works with: small models, trained here and now. Nothing is left behind.
class Classroom {
 public:
  explicit Classroom(const train::Registry& registry);
  ~Classroom();
  Classroom(const Classroom&) = delete;
  Classroom& operator=(const Classroom&) = delete;

  const train::Registry& registry() const { return registry_; }
  // An empty folder.
  const std::filesystem::path& folder() const { return folder_; }
  // A small GPT-2 on one rank, and what `settings` ("train.batch=16") change.
  train::Config config(const std::vector<std::string>& settings) const;
  // Compiled and planned, not run.
  train::Trainer planned(const std::vector<std::string>& settings) const;
  Trained trained(const std::vector<std::string>& settings, int steps = 6) const;

 private:
  const train::Registry& registry_;
  std::filesystem::path folder_;
};

// A law of training, shown by numbers that are measured while the lesson runs.
struct Lesson {
  const char* name;
  const char* title;
  const char* page;
  bool (*run)(const Classroom& classroom);  // false: something that must be exact is not
};

// In the order in which they are best read.
std::span<const Lesson> lessons();

bool teach_reduction(const Classroom& classroom);
bool teach_memory(const Classroom& classroom);
bool teach_recomputation(const Classroom& classroom);
bool teach_offload(const Classroom& classroom);
bool teach_collectives(const Classroom& classroom);
bool teach_data_parallelism(const Classroom& classroom);
bool teach_servers(const Classroom& classroom);
bool teach_tensor_parallelism(const Classroom& classroom);
bool teach_pipelines(const Classroom& classroom);
bool teach_simulator(const Classroom& classroom);

// "██████▌   ": `share` of `width` columns.
std::string bar(double share, int width = 40);
// "✓" or "✗".
const char* mark(bool exact);

}  // namespace trireme::cli
