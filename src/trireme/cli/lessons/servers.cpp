#include <algorithm>
#include <cmath>

#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {

bool teach_servers(const Classroom& classroom) {
  fmt::print(
      "A parameter server keeps the weights and the optimizer; workers push gradients and pull weights, S bytes each "
      "way\n"
      "in a step. Synchronous, all wait for all and train like an all-reduce. Asynchronous, nobody waits, and "
      "gradients\n"
      "are computed from weights that others have changed since. Bounded staleness (ssp) lets nobody be more than so\n"
      "many steps ahead. Two workers, one server, an emulated link of 100 MB/s:\n\n");
  struct Row {
    const char* name;
    train::Outcome outcome;
  };
  std::vector<Row> table;
  for (const char* mode : {"none", "sync", "async", "ssp:2"}) {
    train::Trainer trainer =
        classroom.planned({"train.batch=8", "parallel.mesh=dp=2", "train.steps=30", "train.warmup=5",
                           "runtime.link=100MB/s,50us", fmt::format("parallel.server={}", mode)});
    trainer.start();
    table.push_back({mode, trainer.run()});
  }
  const auto last = [](const std::vector<double>& losses) {
    const std::size_t from = losses.size() - std::min<std::size_t>(5, losses.size());
    double sum = 0;
    for (std::size_t i = from; i < losses.size(); ++i) sum += losses[i];
    return sum / static_cast<double>(losses.size() - from);
  };
  double slowest = 0;
  for (const Row& row : table) slowest = std::max(slowest, row.outcome.seconds);
  fmt::print("{:<12}{:>12}{:>26}\n", "server", "a step", "mean loss of steps 26–30");
  for (const Row& row : table)
    fmt::print("{:<12}{:>9.1f} ms{:>26.4f}  {}\n", std::string(row.name) == "none" ? "all-reduce" : row.name,
               1e3 * row.outcome.seconds / static_cast<double>(row.outcome.steps), last(row.outcome.losses),
               bar(row.outcome.seconds / slowest, 30));
  const bool same = std::abs(last(table[0].outcome.losses) - last(table[1].outcome.losses)) < 1e-4;
  const auto size = 4 * static_cast<double>(classroom.trained({"train.batch=8"}, 1).parameters);
  const double sent = classroom.trained({"train.batch=8", "parallel.mesh=dp=2", "parallel.server=sync"}, 1).sent / size;
  const bool constant = std::abs(sent - 1) < 0.01;
  fmt::print(
      "\nlaw     a worker sends S, here {:.3f}·S of {} bytes, and receives S, however many there are {}\n"
      "law     a server receives N·S and sends N·S: it is the bottleneck, so there may be several (parallel.servers)\n"
      "law     synchronous servers train like an all-reduce {}\n",
      sent, format_count(static_cast<std::uint64_t>(size)), mark(constant), mark(same));
  return same && constant;
}

}  // namespace trireme::cli
