#include <nlohmann/json.hpp>

#include <algorithm>

#include "trireme/cli/bench.h"
#include "trireme/cli/reduction.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

struct ReduceArguments {
  std::int64_t samples = 1'000'000;
  int features = 16;
  std::vector<int> threads = {1, 2, 4};
  int repeats = 5;
  bool json = false;
};

int bench_reduce(const ReduceArguments& a) {
  const ReductionProblem problem(a.samples, a.features);
  const double exact = problem.exact();
  double alone_ms = 0;
  if (!a.json)
    fmt::print(
        "mean absolute error of {} samples × {} features: {:.6f}; median of {}\n\n{:<9}{:>8}{:>11}{:>10}{:>12}{:>10}\n",
        format_count(static_cast<std::uint64_t>(a.samples)), a.features, exact / static_cast<double>(a.samples),
        a.repeats, "variant", "threads", "time", "speed-up", "answer", "lost");
  for (const Reduction variant : kReductions)
    for (const int threads : a.threads) {
      if ((variant == Reduction::alone) != (threads == 1)) continue;
      std::vector<double> ms;
      std::vector<double> sums;
      for (int r = 0; r < a.repeats; ++r) {
        const ReductionOutcome outcome = reduce(problem, variant, threads);
        ms.push_back(1e3 * outcome.seconds);
        sums.push_back(outcome.sum);
      }
      const double time = median(ms);
      const double sum = median(sums);
      if (variant == Reduction::alone) alone_ms = time;
      const ReductionText& d = text_of(variant);
      const double answer = sum / static_cast<double>(a.samples);
      const double lost = 1 - sum / exact;
      if (a.json) {
        const nlohmann::ordered_json o = {{"variant", d.name},          {"threads", threads}, {"median_ms", time},
                                          {"speedup", alone_ms / time}, {"answer", answer},   {"lost", lost}};
        fmt::print("{}\n", o.dump());
      } else {
        fmt::print("{:<9}{:>8}{:>8.2f} ms{:>9.2f}×{:>12.6f}{:>9.1f}%  {}\n", d.name, threads, time, alone_ms / time,
                   answer, 100 * std::max(lost, 0.0), d.how);
      }
    }
  return 0;
}

}  // namespace

void add_bench_reduce(CLI::App& bench, Context& context) {
  auto a = std::make_shared<ReduceArguments>();
  CLI::App* command = bench.add_subcommand("reduce", "How threads may add to one number: four ways, timed and checked");
  command->add_option("--samples", a->samples, "Terms of the sum")->check(CLI::Range(1, 1 << 30));
  command->add_option("--features", a->features, "Work per term")->check(CLI::Range(1, 1 << 16));
  command->add_option("--threads", a->threads, "Thread counts; 1 is always among them")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_option("--repeats", a->repeats, "Repetitions")->check(CLI::Range(1, 1000));
  command->add_flag("--json", a->json, "For scripts");
  command->footer("\nExample:\n  trireme bench reduce --threads 2,4,8\n");
  command->callback([&context, a] {
    context.run = [a] {
      a->threads.push_back(1);
      std::sort(a->threads.begin(), a->threads.end());
      a->threads.erase(std::unique(a->threads.begin(), a->threads.end()), a->threads.end());
      return bench_reduce(*a);
    };
  });
}

}  // namespace trireme::cli
