#pragma once
#include <cstdint>
#include <string>

#include "trireme/cli/commands.h"

namespace trireme::cli {

struct SearchArguments {
  std::string from = "quickstart";  // a configuration, a run folder or a Hugging Face folder
  std::string budget;
  std::string out;
  std::int64_t candidates = 12, keep = 2, rungs = 3, generations = 2, children = 2, workers = 1;
  std::int64_t seed = 1;
  const char* option = "--budget";  // where the budget was given
};

// Searches for a shape, with a line for each loss and a picture at the end; the exit code.
int search_shapes(const Context& context, const SearchArguments& arguments);

}  // namespace trireme::cli
