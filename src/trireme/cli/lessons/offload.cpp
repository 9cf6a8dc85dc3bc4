#include "trireme/cli/equal_losses.h"
#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {

bool teach_offload(const Classroom& classroom) {
  fmt::print(
      "An activation is written early in a step and read late. memory.offload lets it wait in a slower memory (a GPU's "
      "in\n"
      "the host, here on the disk), copied on streams of their own while the step computes.\n\n");
  const std::vector<std::string> model = {"model.width=256", "model.layers=4", "train.batch=8"};
  struct Row {
    const char* name;
    Trained run;
  };
  std::vector<Row> table;
  for (const auto& [name, how] :
       {std::pair("all kept", std::vector<std::string>{}),
        std::pair("activations", std::vector<std::string>{"memory.offload=activations", "memory.offload_policy=all"}),
        std::pair("all offloaded", std::vector<std::string>{"memory.offload=all", "memory.offload_policy=all"})}) {
    std::vector<std::string> settings = model;
    settings.insert(settings.end(), how.begin(), how.end());
    table.push_back({name, classroom.trained(settings, 4)});
  }
  const auto largest = static_cast<double>(table.front().run.planned);
  fmt::print("{:<15}{:>13}{:>13}{:>12}\n", "", "planned peak", "given", "step");
  bool exact = true;
  for (const auto& [name, run] : table) {
    fmt::print("{:<15}{:>13}{:>13}{:>9.1f} ms  {}\n", name, format_bytes(run.planned), format_bytes(run.touched),
               1e3 * run.step, bar(static_cast<double>(run.planned) / largest, 30));
    exact = exact && run.planned == run.touched && largest_difference(table.front().run.losses, run.losses) == 0;
  }
  fmt::print(
      "\nlaw     a step takes at least the larger of computing and copying; what computing does not hide is added\n"
      "        (a disk is slow: a GPU hides far more behind its link, see docs/cuda_results.md)\n");
  fmt::print("law     the numbers do not change, and the plan is exact {}\n", mark(exact));
  return exact;
}

}  // namespace trireme::cli
