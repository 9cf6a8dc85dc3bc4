#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "trireme/comm/communicator.h"
#include "trireme/compress/decode_cost.h"
#include "trireme/compress/search.h"
#include "trireme/train/trainer.h"

namespace trireme::compress {

struct SearchRunsOptions {
  std::filesystem::path folder;  // search.toml, search.jsonl, and a run folder for each candidate
  std::string question;          // what the losses depend on, in TOML: a folder that holds another is refused
  int workers = 1;               // candidates trained at a time by each process
  // Processes that share the candidates, and the folder, of which this is one; null: this process alone.
  comm::Communicator* world = nullptr;
  int processes_here = 1;                                             // of them on this machine
  std::int64_t steps = 0;                                             // of a whole training
  std::function<train::Request(const train::Metrics&)> request = {};  // polled by one candidate at a time
  // While one trains, by one at a time.
  std::function<void(const Candidate&, const train::Metrics&, std::int64_t steps)> on_step = {};
  LogSink log = {};
};

// The trainings of a search: each candidate is a run of its own that goes on from its checkpoint on the next rung, and
// every loss is a line of search.jsonl (of further processes: of search.1.jsonl, …). What is known is not trained
// again. Every process asks for the same trainings in the same order, does its share, and gets all losses.
class SearchRuns {
 public:
  // `space` and `registry` must outlive it.
  SearchRuns(SearchRunsOptions options, const ShapeSpace& space, const train::Registry& registry);

  std::vector<std::optional<double>> train(std::span<const Candidate* const> who, std::int64_t steps);
  std::filesystem::path folder_of(const Candidate& candidate) const;
  // By all processes, since this was made.
  std::int64_t steps_trained() const { return trained_; }

 private:
  void check_question() const;
  void read_losses();
  std::optional<double> train_one(const Candidate& candidate, std::int64_t steps);
  void remember(const Candidate& candidate, std::int64_t steps, double loss);
  // Gives the other processes the losses of those that this one was to train, and takes theirs.
  void share(std::span<const Candidate* const> who, std::int64_t steps, std::span<const std::size_t> mine,
             std::vector<std::optional<double>>& losses);
  int rank() const { return options_.world == nullptr ? 0 : options_.world->rank(); }
  int processes() const { return options_.world == nullptr ? 1 : options_.world->size(); }

  SearchRunsOptions options_;
  const ShapeSpace& space_;
  const train::Registry& registry_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> known_;  // loss by candidate and steps
  std::mutex mutex_;                                               // of known_, the file, and the callbacks
  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> own_ = 0;  // steps of this process that the others do not know of
  std::int64_t trained_ = 0;
};

// In the folder of a search by decode time: what a token takes (decode_cost.h).
inline constexpr const char* kDecodeFile = "decode.json";
// Refuses a folder that holds something else than a search.
void check_search_folder(const std::filesystem::path& folder);

// What a configuration's model costs; nothing where it cannot be. Time to decode is that of `decode`; the time of a
// step is simulated, and refused on a machine that was not calibrated.
std::optional<double> cost_of(train::Config config, Budget::Kind kind, const train::Registry& registry,
                              const DecodeCost* decode = nullptr);

}  // namespace trireme::compress
