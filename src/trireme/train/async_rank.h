#pragma once
#include <array>
#include <optional>
#include <vector>

#include "trireme/comm/request.h"
#include "trireme/train/rank.h"

namespace trireme::train {

// A rank of an asynchronous pipeline: it fills the pipeline with its first step and drains it after its last, and in
// between waits for nothing but its messages. After each step the ranks report to each other, in the background: what
// came of the step, and whether they are to come together. A rank starts no step before it has the reports of the step
// before the last, so that all of them stop after the same step.
class AsyncRank final : public Rank {
 public:
  AsyncRank(const Compiled& compiled, const Place& place);

  // From an empty pipeline to an empty one.
  StepResult step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) override;
  std::int64_t run(const Steps& steps) override;
  // Nothing: stages that have gone on cannot run the step again.
  std::optional<runtime::Executor::BadTensor> explain(const data::Batch& batch, std::int64_t step, double lr,
                                                      std::int64_t seed) override;

 private:
  // What the ranks report of a step, summed.
  struct Report {
    enum Field { loss, norm_square, not_finite, interrupt, fields };
    std::int64_t step = 0;
    std::array<double, fields> sums{};
    std::optional<comm::Request> request = {};
  };
  // Binds what the updates in a program read. Those of micro-batches in flight belong to the step before `step`.
  void bind_updates(runtime::Executor& executor, const program::Program& program, std::int64_t step,
                    const std::function<double(std::int64_t)>& lr);
  // Of the updates that a program has made.
  void read_updates(const runtime::Executor& executor, const program::Program& program, Report& report);
  // The kind of a step (compiler::step_kinds).
  const std::string& kind(std::int64_t step) const;
  // Steps of one kind of update: from an empty pipeline to an empty one.
  std::int64_t run_of_one_kind(const Steps& steps, const std::string& prefix);
  void run_program(const std::string& name, const Steps& steps, std::int64_t step, bool drains, Report& report);
  void send(Report& report);
  // Without a norm: while the pipeline is full, the stages' last updates are those of different micro-batches.
  StepResult received(Report& report);

  comm::Communicator& reports_;
  std::vector<compiler::StepProgram> kinds_;
  bool speaks_ = false;             // for the ranks of its stage
  double norm_ = 0;                 // of the stage's gradients, at its last update
  std::vector<float> lr_;           // by micro-batch
  std::vector<float> step_number_;  // by micro-batch
  std::array<Report, 2> report_;    // of the last two steps
};

}  // namespace trireme::train
