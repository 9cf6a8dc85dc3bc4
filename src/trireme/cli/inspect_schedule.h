#pragma once
#include <string>
#include <vector>

#include "trireme/cli/commands.h"

namespace trireme::cli {

// The options of `trireme inspect schedule`.
struct ScheduleArguments {
  int stages = 0;         // 0: the configuration's pp
  int micro_batches = 0;  // 0: the configuration's
  std::string pipeline;   // "": the configuration's
  std::vector<double> costs;
  std::vector<int> max_held;
  int width = 0;  // 0: the terminal's
  std::string svg;
  bool json = false;

  void add_to(CLI::App& command);
  // Refuses what was given and says nothing about `what`.
  void expect_none(const std::string& what) const;
};

// Prints a pipeline's schedule. `config` may be empty: then the arguments say everything. With a configuration, or with
// keys of one, the bytes of each stage too, by its plan under that schedule.
int inspect_schedule(const Context& context, const std::string& config, const ScheduleArguments& given);

}  // namespace trireme::cli
