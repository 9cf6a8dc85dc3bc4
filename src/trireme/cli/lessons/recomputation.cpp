#include <cmath>

#include "trireme/cli/equal_losses.h"
#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {

bool teach_recomputation(const Classroom& classroom) {
  fmt::print(
      "The backward pass reads what the forward pass computed. Kept all, that grows with the depth n. With "
      "memory.remat\n"
      "some is recomputed: of √n groups of √n layers only the ends are kept, and one group at a time is "
      "recomputed.\n\n");
  const auto activations = [&](int layers, const char* remat) {
    const train::Trainer trainer =
        classroom.planned({fmt::format("model.layers={}", layers), fmt::format("memory.remat={}", remat)});
    return program::peak(trainer.compiled().roles.front().largest())
        .categories[static_cast<std::size_t>(program::Category::activations)];
  };
  struct Row {
    int layers;
    std::size_t none;
    std::size_t sqrt;
  };
  std::vector<Row> table;
  for (const int layers : {4, 16, 64})
    table.push_back({layers, activations(layers, "none"), activations(layers, "sqrt")});
  fmt::print("{:>6}{:>14}{:>14}   activations, planned\n", "layers", "none", "sqrt");
  for (const Row& row : table) {
    const auto share = [&](std::size_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(table.back().none);
    };
    fmt::print("{:>6}{:>14}{:>14}   none {}\n{:>37}sqrt {}\n", row.layers, format_bytes(row.none),
               format_bytes(row.sqrt), bar(share(row.none)), "", bar(share(row.sqrt)));
  }
  const auto grown = [&](auto of) { return static_cast<double>(of(table[2])) / static_cast<double>(of(table[1])); };
  const double none = grown([](const Row& r) { return r.none; });
  const double sqrt = grown([](const Row& r) { return r.sqrt; });
  // What does not depend on the layers, and √n that is not whole, make the rest.
  const bool grows = std::abs(none - 4) < 0.4 && std::abs(sqrt - 2) < 0.4;
  fmt::print("\nlaw     four times the layers: {:.2f} times the bytes when all is kept (4), {:.2f} with sqrt (2) {}\n",
             none, sqrt, mark(grows));

  const Trained kept = classroom.trained({"model.layers=16"}, 5);
  const Trained again = classroom.trained({"model.layers=16", "memory.remat=sqrt"}, 5);
  fmt::print(
      "law     at most one forward pass more, a third of a step: {:.1f} ms → {:.1f} ms, {:.2f}×, with 16 layers\n",
      1e3 * kept.step, 1e3 * again.step, again.step / kept.step);
  const bool exact = largest_difference(kept.losses, again.losses) == 0;
  fmt::print("law     the numbers do not change: the losses of {} steps are equal to the bit {}\n", kept.losses.size(),
             mark(exact));
  return exact && grows;
}

}  // namespace trireme::cli
