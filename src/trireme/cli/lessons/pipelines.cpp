#include <algorithm>
#include <cmath>

#include "trireme/cli/equal_losses.h"
#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/picture.h"

namespace trireme::cli {

bool teach_pipelines(const Classroom& classroom) {
  constexpr int kStages = 4;
  fmt::print(
      "The layers are shared out over p stages, the batch over m micro-batches. Stage 1 begins when stage 0 has done "
      "its\n"
      "first micro-batch: the time in between is the bubble. 1f1b, four stages, four micro-batches:\n\n");
  const auto timed = [](const char* pipeline, int micro_batches) {
    const program::Schedule schedule = program::make_schedule(
        {.pipeline = program::parse_pipeline(pipeline), .stages = kStages, .micro_batches = micro_batches});
    return std::pair(schedule, program::time_schedule(schedule));
  };
  const auto [schedule, timing] = timed("1f1b", 4);
  fmt::print("{}\n", program::picture(schedule, timing));
  fmt::print("{:>15}{:>12}{:>18}{:>16}{:>16}\n", "micro-batches", "bubble", "(p−1)/(m+p−1)", "held by 1f1b",
             "by gpipe");
  bool exact = true;
  for (const int m : {2, 4, 8, 16, 32}) {
    const double bubble = timed("1f1b", m).second.bubble();
    const double law = (kStages - 1.0) / (m + kStages - 1);
    const int held = program::held(timed("1f1b", m).first).front();
    const int held_by_gpipe = program::held(timed("gpipe", m).first).front();
    exact = exact && std::abs(bubble - law) < 1e-12 && held == std::min(m, kStages) && held_by_gpipe == m;
    fmt::print("{:>15}{:>11.1f}%{:>17.1f}%{:>16}{:>16}  {}\n", m, 100 * bubble, 100 * law, held, held_by_gpipe,
               bar(bubble, 30));
  }
  const Trained one = classroom.trained({"train.micro_batch=2"}, 4);
  const Trained two = classroom.trained({"train.micro_batch=2", "parallel.mesh=pp=2"}, 4);
  const double difference = largest_difference(one.losses, two.losses);
  const bool same = difference < 1e-5;
  fmt::print("\nlaw     the bubble is (p−1)/(m+p−1); 1f1b holds at most p micro-batches, gpipe all m {}\n",
             mark(exact));
  fmt::print("law     two stages train like one rank: losses differ by {:.1e} {}\n", difference, mark(same));
  return exact && same;
}

}  // namespace trireme::cli
