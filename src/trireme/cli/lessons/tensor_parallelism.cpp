#include <algorithm>

#include "trireme/cli/equal_losses.h"
#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

// All-reduces of a micro-batch.
std::int64_t all_reduces(const train::Trainer& trainer) {
  const ir::Graph& graph = trainer.compiled().roles.front().module.graph("micro");
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const ir::Node& node) { return node.op->name == "all_reduce"; });
}

}  // namespace

bool teach_tensor_parallelism(const Classroom& classroom) {
  fmt::print(
      "Ranks along tp share every matrix: the first of a pair by columns, so that each rank has some heads or hidden "
      "units,\n"
      "the second by rows, so that each has a part of the sum. Two annotations per block say so; propagation finds the "
      "rest\n"
      "(trireme inspect graph --parallel.mesh=tp=2 --explain '*.weight'). An all-reduce follows each pair, forward "
      "and\n"
      "backward.\n\n");
  const Trained one = classroom.trained({}, 4);
  bool good = true;
  fmt::print("{:>4}{:>22}{:>16}{:>24}\n", "tp", "parameters per rank", "sent per step", "losses differ by");
  for (const int ranks : {1, 2, 4}) {
    const Trained t = classroom.trained({fmt::format("parallel.mesh=tp={}", ranks)}, 4);
    const double difference = largest_difference(one.losses, t.losses);
    good = good && difference < 1e-5;
    fmt::print("{:>4}{:>22}{:>16}{:>24.1e}  {}\n", ranks, format_count(t.parameters),
               format_count(static_cast<std::uint64_t>(t.sent)), difference,
               bar(static_cast<double>(t.parameters) / static_cast<double>(one.parameters), 30));
  }
  const std::int64_t two = all_reduces(classroom.planned({"parallel.mesh=tp=2", "model.layers=2"}));
  const std::int64_t four = all_reduces(classroom.planned({"parallel.mesh=tp=2", "model.layers=4"}));
  const bool megatron = (four - two) == 4 * 2;
  fmt::print(
      "\nlaw     each block has four all-reduces of rows × context × width: two forward, two backward; here {} for "
      "two\n"
      "        blocks more {}\n",
      four - two, mark(megatron));
  fmt::print("law     the ranks together train like one {}\n", mark(good));
  return good && megatron;
}

}  // namespace trireme::cli
