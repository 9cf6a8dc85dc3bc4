#include <cmath>

#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"

namespace trireme::cli {

bool teach_simulator(const Classroom& classroom) {
  fmt::print(
      "What a rank runs is a list of instructions, so its time can be computed instead of measured: the same programs, "
      "on\n"
      "a described cluster. A GPT of 8 layers of 1024 on eight H100, 64 rows of 1024 tokens:\n\n");
  const std::vector<std::string> model = {"model.layers=8",      "model.width=1024",    "model.heads=16",
                                          "model.context=1024",  "model.vocab=50304",   "train.batch=64",
                                          "train.micro_batch=8", "train.precision=bf16"};
  struct Row {
    std::string mesh;
    simulator::Simulation simulation;
    std::size_t bytes;
  };
  std::vector<Row> table;
  for (const char* mesh : {"dp=8", "tp=8", "pp=8", "pp=2,dp=2,tp=2"}) {
    std::vector<std::string> settings = model;
    settings.push_back(fmt::format("parallel.mesh={}", mesh));
    const train::OnCluster on = train::compile_on(classroom.config(settings), classroom.registry(),
                                                  cluster::load_cluster("h100"), {.ranks = 8});
    table.push_back({mesh, simulator::simulate(on.compiled, on.cluster), on.compiled.arena_bytes()});
  }
  bool exact = true;
  fmt::print("{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}\n", "mesh", "step", "compute", "exposed", "bubble", "waiting",
             "memory");
  for (const Row& row : table) {
    const simulator::TimeByKind& t = row.simulation.mean;
    const double step = row.simulation.step_seconds;
    const auto share = [&](double seconds) { return fmt::format("{:.1f}%", 100 * seconds / step); };
    fmt::print("{:<16}{:>7.2f} ms{:>10}{:>10}{:>10}{:>10}{:>12}\n", row.mesh, 1e3 * step, share(t.compute),
               share(t.exposed_communication), share(t.bubble), share(t.waiting), format_bytes(row.bytes));
    exact = exact && std::abs(t.total() - step) <= 1e-6 * step;
  }
  fmt::print("\npp=2,dp=2,tp=2, a line for each role:\n{}", simulator::picture(table.back().simulation, 100));
  fmt::print("  F forward, B input gradients, W weight gradients, U update, c exposed communication, · idle\n\n");
  fmt::print("law     compute, exposed communication, bubble and waiting add up to the step {}\n", mark(exact));
  return exact;
}

}  // namespace trireme::cli
