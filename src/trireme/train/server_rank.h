#pragma once
#include <functional>
#include <memory>

#include "trireme/runtime/server.h"
#include "trireme/train/rank.h"

namespace trireme::train {

// A rank that keeps its keys, takes the workers' pushes and answers their pulls.
class ServerRank final : public Rank {
 public:
  // `timeout`: seconds without any push.
  ServerRank(const Compiled& compiled, const Place& place, double timeout);

  // After the state was set from outside: workers get theirs.
  void refresh_copies() override;
  // What came of the last update: all that workers report, so that every process decides the same by it.
  StepResult step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) override;
  std::int64_t run(const Steps& steps) override;
  std::optional<runtime::Executor::BadTensor> explain(const data::Batch& batch, std::int64_t step, double lr,
                                                      std::int64_t seed) override;

  // The most steps that a worker was ahead of the slowest when it got new weights.
  std::int64_t largest_lead() const { return server_->largest_lead(); }

 private:
  // The workers' steps `first` … `first` + `count` - 1.
  StepResult serve(std::int64_t first, std::int64_t count, const std::function<double(std::int64_t step)>& lr);

  runtime::Server::Table table(const program::Exchange& exchange);
  // As it is now.
  float own_loss_scale();
  // Where the role has such a program.
  void run_graph(const std::string& graph);

  const program::Exchange& exchange_;
  std::unique_ptr<runtime::Server> server_;
  std::int64_t updates_ = 0;  // since `first`
  std::int64_t around_ = -1;  // the last step whose graphs around the update were run
  float lr_ = 0;
  float step_number_ = 0;
};

}  // namespace trireme::train
