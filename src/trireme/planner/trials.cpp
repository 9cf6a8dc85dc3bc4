#include "trireme/planner/trials.h"

#include <algorithm>
#include <mutex>

#include "trireme/core/error.h"
#include "trireme/core/thread_pool.h"
#include "trireme/planner/predict.h"

namespace trireme::planner {

Tried tried(const compiler::Compiled& compiled) {
  Tried result;
  for (const compiler::Role& role : compiled.roles) {
    if (!role.takes_rows()) continue;
    result.peak = std::max(result.peak, role.arena_bytes);
    result.seconds = std::max(result.seconds, nominal_seconds(role.program("step")));
  }
  return result;
}

std::vector<Tried> try_plans(std::size_t count, const std::function<Settled(std::size_t)>& settle,
                             const TrialOptions& options) {
  const std::size_t first = std::min(options.first, count);
  std::vector<Tried> results(count);
  std::fill_n(results.begin(), first, Tried{.refused = "it was left out", .tried = false});
  std::mutex mutex;
  std::size_t begun = 0;
  ThreadPool pool(options.threads);
  pool.run(static_cast<std::int64_t>(count - first), [&](std::int64_t task) {
    const std::size_t i = count - 1 - static_cast<std::size_t>(task);
    if (options.on_one) {
      const std::lock_guard lock(mutex);
      options.on_one(begun++, count - first);
    }
    try {
      const Settled settled = settle(i);
      results[i] = tried(compiler::compile(settled.graphs, settled.plan));
    } catch (const Error& e) {
      results[i].refused = e.what();
    }
  });
  return results;
}

}  // namespace trireme::planner
