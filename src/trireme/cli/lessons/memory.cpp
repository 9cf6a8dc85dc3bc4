#include <array>
#include <cmath>

#include "trireme/cli/lessons/lesson.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {

bool teach_memory(const Classroom& classroom) {
  fmt::print(
      "A step keeps four kinds of bytes. Weights, gradients and AdamW's two states do not depend on the batch:\n"
      "4 + 4 + 8 bytes for each parameter in f32. Activations are saved for the backward pass, for every row.\n"
      "The table has what is alive when the most bytes are; by then few of the gradients exist.\n\n");
  constexpr std::array<std::int64_t, 4> kRows = {4, 8, 16, 32};
  struct Row {
    std::int64_t rows;
    Trained run;
  };
  std::vector<Row> table;
  for (const std::int64_t rows : kRows)
    table.push_back({rows, classroom.trained({fmt::format("train.batch={}", rows)}, 1)});
  const auto bytes = [](const Trained& t, program::Category c) {
    return t.peak.categories[static_cast<std::size_t>(c)];
  };
  const auto largest = static_cast<double>(table.back().run.planned);
  bool exact = true;
  fmt::print("{:>5}{:>13}{:>13}{:>13}{:>14}{:>15}{:>15}\n", "rows", "weights", "gradients", "optimizer", "activations",
             "planned peak", "given");
  for (const auto& [rows, run] : table) {
    fmt::print(
        "{:>5}{:>13}{:>13}{:>13}{:>14}{:>15}{:>15}\n", rows, format_count(bytes(run, program::Category::weights)),
        format_count(bytes(run, program::Category::gradients)), format_count(bytes(run, program::Category::optimizer)),
        format_count(bytes(run, program::Category::activations)), format_count(run.planned), format_count(run.touched));
    exact = exact && run.planned == run.touched;
  }
  fmt::print("\n");
  for (const auto& [rows, run] : table) {
    const double state =
        static_cast<double>(bytes(run, program::Category::weights) + bytes(run, program::Category::gradients) +
                            bytes(run, program::Category::optimizer));
    const auto activations = static_cast<double>(bytes(run, program::Category::activations));
    std::string text;
    for (double i = 0; i < 60 * state / largest; ++i) text += "▓";
    for (double i = 0; i < 60 * activations / largest; ++i) text += "░";
    fmt::print("{:>5}  {}\n", rows, text);
  }
  fmt::print("       ▓ weights, gradients, optimizer   ░ activations\n\n");
  const double parameters = static_cast<double>(table.front().run.parameters);
  const Trained& first = table.front().run;
  const double per_parameter =
      static_cast<double>(bytes(first, program::Category::weights) + bytes(first, program::Category::optimizer)) /
      parameters;
  const double growth = static_cast<double>(bytes(table[3].run, program::Category::activations)) /
                        static_cast<double>(bytes(table[1].run, program::Category::activations));
  const bool state = std::abs(per_parameter - 12) < 0.05;
  const bool proportional = std::abs(growth - 4) < 0.2;
  fmt::print("law     weights and optimizer states: 12 bytes a parameter; here {:.2f} ({} parameters) {}\n",
             per_parameter, format_count(table.front().run.parameters), mark(state));
  fmt::print("law     activations are proportional to the rows; four times the rows: {:.2f} times the bytes {}\n",
             growth, mark(proportional));
  fmt::print("law     the plan is exact: the last byte that a kernel was given is the last one planned {}\n",
             mark(exact));
  return exact && state && proportional;
}

}  // namespace trireme::cli
