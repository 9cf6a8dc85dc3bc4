#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/compiler/compiled.h"
#include "trireme/passes/routes.h"

namespace trireme::compiler {

struct CompileOptions {
  std::filesystem::path dump_passes = {};  // numbered text files, one after each pass; empty: none
  std::vector<std::string> disabled_passes = {};
  std::function<void(const std::string& pass, double seconds)> on_pass = {};
};

// From a model and a plan to checked programs. Pure: reads nothing but its arguments and decides nothing. What
// graphs.module.registry points to must outlive the result.
Compiled compile(const Graphs& graphs, const Plan& plan, const CompileOptions& options = {});

// Proves that programs of different roles that run at the same time cannot wait for each other for ever: those of a
// step, and where there are several ranks those of every other purpose. Throws, naming the instructions. Gives what it
// has proved: `compile` has done it, and keeps that as Compiled::together.
program::TogetherReport check_roles(const Compiled& compiled);

// A compilation that has stopped before one of the graph passes, so that a planner can look at the module there and try
// how a step comes out under several plans. `graphs` must outlive it. Up to
// first_pass_by_place (graph_passes.h) it is the same for all roles; a copy of the compilation that stands there can go
// on with any of them.
//
//   Compilation c(graphs);
//   c.run_until(plan, "remat");
//   plan.recompute = chosen(c.module());
//   program::Program step = c.step(plan);
class Compilation {
 public:
  explicit Compilation(const Graphs& graphs);

  // Runs the passes from where it stands to the one of that name, which is left out. The plan's part that earlier
  // passes have carried out must be as it was then.
  void run_until(const Plan& plan, const std::string& pass);
  const ir::Module& module() const { return module_; }
  // From here on it is that of the role with these places, by axis (graph_passes.h). The first stage's otherwise.
  void choose_role(passes::Places at) { at_ = std::move(at); }
  // What the stage does in a step, in order.
  std::vector<program::Action> actions(const Plan& plan) const;
  // The step that comes of it under `plan`. Leaves this as it stands.
  program::Program step(const Plan& plan) const;

 private:
  std::size_t stage() const {
    return at_.contains(ir::kPipelineAxis) ? static_cast<std::size_t>(at_.at(ir::kPipelineAxis)) : 0;
  }

  const Graphs& graphs_;
  ir::Module module_;
  std::string next_;  // the pass before which it stands; empty: the first
  passes::Places at_ = {};
};

}  // namespace trireme::compiler
