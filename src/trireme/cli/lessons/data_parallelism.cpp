#include <algorithm>
#include <cmath>

#include "trireme/cli/equal_losses.h"
#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {

bool teach_data_parallelism(const Classroom& classroom) {
  fmt::print(
      "Each of N ranks takes a part of the batch's rows and has all weights. Its gradients are a part of the sum, so "
      "an\n"
      "all-reduce of S gradient bytes makes them whole: a ring sends 2S(N−1)/N for each rank. The model is the same "
      "as\n"
      "that of one rank; only the order of sums differs.\n\n");
  const Trained one = classroom.trained({"train.batch=8"}, 4);
  const double gradients = 4.0 * static_cast<double>(one.parameters);
  bool good = true;
  fmt::print("{:>5}{:>16}{:>18}{:>24}\n", "ranks", "sent per step", "2S(N−1)/N", "losses differ by");
  for (const int ranks : {1, 2, 4}) {
    const Trained t =
        classroom.trained({"train.batch=8", fmt::format("parallel.mesh=dp={}", ranks), "parallel.allreduce=ring"}, 4);
    const double law = 2 * gradients * (ranks - 1) / ranks;
    const double difference = largest_difference(one.losses, t.losses);
    // A few scalars (the loss, the gradient norm) are sent too.
    good = good && difference < 1e-5 && std::abs(t.sent - law) <= 0.01 * law + 64 * ranks;
    fmt::print("{:>5}{:>16}{:>18}{:>24.1e}  {}\n", ranks, format_count(static_cast<std::uint64_t>(t.sent)),
               format_count(static_cast<std::uint64_t>(law)), difference, mark(good));
  }
  fmt::print(
      "\nOver a slow link (emulated, 50 MB/s), gradients are sent while the backward pass computes the next ones:\n\n");
  const std::vector<std::string> two = {"train.batch=8", "parallel.mesh=dp=2", "parallel.bucket=128KiB",
                                        "runtime.link=50MB/s,50us"};
  std::vector<std::string> without = two;
  without.emplace_back("parallel.overlap=false");
  const Trained overlapped = classroom.trained(two, 6);
  const Trained waited = classroom.trained(without, 6);
  const double longest = std::max(overlapped.step, waited.step);
  for (const auto& [name, t] : {std::pair("overlapped", &overlapped), std::pair("not", &waited)})
    fmt::print("{:<11}{:>8.1f} ms a step, {:>6.1f} ms of it waiting  {}\n", name, 1e3 * t->step, 1e3 * t->exposed,
               bar(t->step / longest, 30));
  fmt::print("\nlaw     the ranks together train like one; traffic is 2S(N−1)/N {}\n", mark(good));
  return good;
}

}  // namespace trireme::cli
