#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "trireme/compress/search.h"
#include "trireme/train/trainer.h"

namespace trireme::compress {

struct SearchRunsOptions {
  std::filesystem::path folder;  // search.json, search.jsonl, and a run folder for each candidate
  std::string question;          // what the losses depend on, in TOML: a folder that holds another is refused
  int workers = 1;               // candidates trained at a time
  std::int64_t steps = 0;        // of a whole training
  std::function<train::Request(const train::Metrics&)> request = {};  // polled by one candidate at a time
  // While one trains, by one at a time.
  std::function<void(const Candidate&, const train::Metrics&, std::int64_t steps)> on_step = {};
  LogSink log = {};
};

// The trainings of a search: each candidate is a run of its own that goes on from its checkpoint on the next rung, and
// every loss is a line of search.jsonl. What is known is not trained again.
class SearchRuns {
 public:
  // `space` and `registry` must outlive it.
  SearchRuns(SearchRunsOptions options, const ShapeSpace& space, const train::Registry& registry);

  std::vector<std::optional<double>> train(std::span<const Candidate* const> who, std::int64_t steps);
  std::filesystem::path folder_of(const Candidate& candidate) const;
  // In all, and by this process.
  std::int64_t steps_trained() const { return trained_; }

 private:
  void check_question() const;
  void read_losses();
  std::optional<double> train_one(const Candidate& candidate, std::int64_t steps);
  void remember(const Candidate& candidate, std::int64_t steps, double loss);

  SearchRunsOptions options_;
  const ShapeSpace& space_;
  const train::Registry& registry_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> known_;  // loss by candidate and steps
  std::mutex mutex_;                                               // of known_, the file, and the callbacks
  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> trained_ = 0;
};

// What a configuration's model costs; nothing where it cannot be. Refuses costs of time on a machine that was not
// calibrated.
std::optional<double> cost_of(train::Config config, Budget::Kind kind, const train::Registry& registry);

}  // namespace trireme::compress
