#pragma once
#include <functional>
#include <string>
#include <vector>

#include "trireme/cli/command_line.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// What every command gets: the ops and models, and the `--section.key=value` settings taken out of the command line.
struct Context {
  const train::Registry* registry = nullptr;
  std::vector<std::string> overrides;
  std::string command_line;
  std::string program = "trireme";     // as it was called: "trireme", or "./trireme" of a checkout
  const CLI::App* commands = nullptr;  // all of them
  std::function<int()> run;            // set by the command that was chosen; its result is the exit code
};

void add_train(CLI::App& app, Context& context);
void add_generate(CLI::App& app, Context& context);
void add_import(CLI::App& app, Context& context);
void add_export(CLI::App& app, Context& context);
void add_compress(CLI::App& app, Context& context);
void add_search(CLI::App& app, Context& context);
void add_eval(CLI::App& app, Context& context);
void add_memory(CLI::App& app, Context& context);
void add_inspect(CLI::App& app, Context& context);
void add_simulate(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_fit(CLI::App& app, Context& context);
void add_calibrate(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);
void add_tokenize(CLI::App& app, Context& context);
void add_config(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);
void add_lesson(CLI::App& app, Context& context);

}  // namespace trireme::cli
