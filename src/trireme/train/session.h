#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trireme/train/culprit.h"
#include "trireme/train/rank.h"

namespace trireme::train {

struct SessionOptions {
  // Ranks that are processes of their own, of which this is one (must outlive the session); null: all are threads here.
  comm::Communicator* world = nullptr;
  int threads = 1;                  // of each rank's computation
  std::filesystem::path disk = {};  // as Rank's
  OptionNames names = key_names();  // as Rank's
  comm::Algorithm allreduce = comm::Algorithm::automatic;
  std::string link = {};  // emulated, between ranks that are threads
  double timeout = 60;    // seconds that a rank may wait for the others
  bool nccl = false;      // between GPUs
  // Those that the run computes by, of a GPU's libraries; must outlive the session. Null: nothing is recorded.
  device::Algorithms* algorithms = nullptr;
};

// The ranks of a run, ready to train together: each with its own memory and its part of the batch. They are threads of
// this process, or one of them is this process. When one of them fails, the others stop too; the first error
// is the one thrown, with the rank's number.
class Session {
 public:
  // `compiled` must outlive the session.
  Session(const Compiled& compiled, const SessionOptions& options);
  Session(const Compiled& compiled, int threads, const std::filesystem::path& disk = {})
      : Session(compiled, SessionOptions{.threads = threads, .disk = disk}) {}
  ~Session();

  void initialize(std::int64_t seed);
  // One update from the rows of `batch`, which has those of the ranks of this process. `step` counts from 0.
  StepResult step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed);
  // Before a step: what the one after it will read, if that is there already; see Rank.
  void expect(const data::Batch& next);
  // Several, each rank at its own pace where the plan allows it; all have the same weights again when it returns, and
  // nothing is in flight. Returns how many were done.
  std::int64_t run(const Steps& steps);
  // The first value of a step's batch that is not finite, of the rows of all processes. Collective.
  std::optional<BadInput> bad_input(const data::Batch& batch);
  // After a step that was not finite: the first value of its batch that is not or, where all are, the first tensor. For
  // that the step is run again, looking at every output on every rank; of several ranks the one counts that nothing bad
  // had reached from another. The state is as before the step, since a bad step writes nothing.
  std::optional<Culprit> explain(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed);
  // Of one micro-batch's rows.
  Evaluation evaluate(const data::Batch& batch);
  // Logits [context, vocab] of one row of tokens, or [classes] of one image's pixels.
  std::span<const float> predict(std::span<const std::int32_t> tokens);
  std::span<const float> predict(std::span<const float> pixels);
  // What a model predicts of one row of the inputs that it names itself.
  std::span<const float> predict(const data::Batch& row);
  // Prefill and decode: continues a sequence of which `position` tokens were given before, by at most as many tokens as
  // the largest compiled program takes (compiler::Prefill). Returns the logits [vocab] after the last of them.
  std::span<const float> decode(std::span<const std::int32_t> tokens, std::int64_t position);

  // State by name, in its own dtype, wherever it is and however it is kept: all of it, or some of its bytes. Writing
  // waits while it is held. After setting, call `refresh_copies`.
  std::vector<std::byte> state(const std::string& name);
  void read_state(const std::string& name, std::size_t offset, std::span<std::byte> out);
  void write_state(const std::string& name, std::size_t offset, std::span<const std::byte> bytes);
  // Recomputes the copies that are derived from weights, such as those in low precision.
  void refresh_copies();
  // Counts what may have changed the state: where the number is the same, so is the state.
  std::uint64_t changes() const { return changes_; }

  // Those of this process; the ranks that take rows of the batch come first.
  std::span<const std::unique_ptr<Rank>> ranks() const { return ranks_; }
  Rank& rank(std::size_t i) { return *ranks_[i]; }
  // Of them, those that take rows of the batch.
  std::size_t row_ranks() const;
  // The rows of the global batch that those take in a step of this many micro-batches: in ascending order, neighbours
  // as one range.
  std::vector<data::RowRange> rows(int micro_batches) const;
  // The number of the first of them.
  std::size_t first_rank() const { return world_ == nullptr ? 0 : static_cast<std::size_t>(world_->rank()); }
  comm::Communicator* world() const { return world_; }
  // Runs `body(rank)` for every rank that takes rows, at once.
  template <class F>
  void each(F&& body) {
    const auto some = [&](Rank& rank) {
      if (rank.takes_rows()) body(rank);
    };
    run_each(std::ref(some));  // no copy, so nothing is allocated
  }

  const Compiled& compiled() const { return compiled_; }
  runtime::Executor& step_executor() { return rank(0).step_executor(); }
  // Largest end offset handed to any kernel so far, on any rank; checks the guard bytes.
  std::size_t highest_offset() const;
  std::size_t highest_offset(int tier) const;
  // Bytes that a rank has sent to others so far; the largest.
  std::uint64_t sent_bytes() const;

 private:
  class Crew;
  // Runs `logits(rank)` for every rank that takes rows and gives the first one's.
  template <class F>
  std::span<const float> logits_by(F&& logits) {
    std::span<const float> first;
    each([&](Rank& rank) {
      const std::span<const float> own = logits(rank);
      if (&rank == ranks_.front().get()) first = own;
    });
    return first;
  }
  void run_each(const std::function<void(Rank&)>& body);
  void join(comm::Communicator& world, int number, std::size_t here, const SessionOptions& options);
  // What the steps of ranks that went at their own pace leave different becomes the same.
  void catch_up();

  const Compiled& compiled_;
  std::uint64_t changes_ = 0;
  comm::Communicator* world_;
  std::vector<std::unique_ptr<runtime::ProcessGroups>> groups_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Crew> crew_;  // null: one rank, on the caller's thread
};

}  // namespace trireme::train
