#include "trireme/cli/reduction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"

namespace trireme::cli {

bool teach_reduction(const Classroom&) {
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, 8);
  const ReductionProblem problem(400'000, 16);
  const double exact = problem.exact();
  fmt::print(
      "A sum over many terms is shared out over {} threads. Reading the total, adding and writing it back are three "
      "steps:\n"
      "between them another thread's addition is lost. A lock keeps the answer right and makes the threads take turns. "
      "Each\n"
      "adding up its own terms, and all once at the end, does neither. Gradients of ranks are summed so, too.\n\n",
      threads);
  fmt::print("{:<9}{:>8}{:>12}{:>11}\n", "", "threads", "fastest", "lost");
  double slowest = 0;
  std::map<Reduction, double> times;
  double lost_by_racing = 0;
  bool right = true;
  std::vector<std::tuple<Reduction, double, double>> rows;
  for (const Reduction reduction : kReductions) {
    std::vector<double> seconds;
    double sum = 0;
    for (int repeat = 0; repeat < 7; ++repeat) {
      const ReductionOutcome outcome = reduce(problem, reduction, reduction == Reduction::alone ? 1 : threads);
      seconds.push_back(outcome.seconds);
      sum = outcome.sum;
    }
    const double time = *std::min_element(seconds.begin(), seconds.end());
    const double lost = 1 - sum / exact;
    times[reduction] = time;
    if (reduction == Reduction::racing)
      lost_by_racing = lost;
    else
      right = right && std::abs(lost) < 1e-9;
    slowest = std::max(slowest, time);
    rows.emplace_back(reduction, time, lost);
  }
  for (const auto& [reduction, time, lost] : rows)
    fmt::print("{:<9}{:>8}{:>9.2f} ms{:>10.1f}%  {} {}\n", text_of(reduction).name,
               reduction == Reduction::alone ? 1 : threads, 1e3 * time, 100 * std::max(lost, 0.0),
               bar(time / slowest, 30), text_of(reduction).how);
  fmt::print("\nlaw     {}\n", reduction_law({.alone = times[Reduction::alone],
                                              .locked = times[Reduction::locked],
                                              .partial = times[Reduction::partial],
                                              .lost = lost_by_racing,
                                              .right = right}));
  return right;
}

}  // namespace trireme::cli
