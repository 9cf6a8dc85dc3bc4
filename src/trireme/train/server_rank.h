#pragma once
#include <functional>
#include <memory>

#include "trireme/runtime/server.h"
#include "trireme/train/rank.h"

namespace trireme::train {

// What one server rank does of a run: keeps its keys, takes the workers' pushes and answers their pulls.
class ServerRank {
 public:
  // `compiled` is a server's. It and `ranks` must outlive it.
  ServerRank(const Compiled& compiled, int threads, const std::filesystem::path& disk, runtime::Membership& ranks,
             double timeout);

  void initialize(std::int64_t seed) { rank_.initialize(seed); }
  // After the state was set from outside: workers get theirs.
  void derive();
  // The workers' steps `first` … `first` + `count` - 1. Gives what came of the last update.
  StepResult serve(std::int64_t first, std::int64_t count, const std::function<double(std::int64_t step)>& lr);

  Rank& rank() { return rank_; }
  const Rank& rank() const { return rank_; }
  // The most steps that a worker was ahead of the slowest when it got new weights.
  std::int64_t largest_lead() const { return server_->largest_lead(); }

 private:
  const Compiled& compiled_;
  Rank rank_;
  std::unique_ptr<runtime::Server> server_;
  std::int64_t updates_ = 0;  // since `first`
  float lr_ = 0;
  float step_number_ = 0;
};

}  // namespace trireme::train
