#pragma once
#include <string>

#include "trireme/compiler/compiled.h"
#include "trireme/program/lower.h"

namespace trireme::compiler {

// Where the states of a module lie. `ranks` share the work of writing checkpoints, which a CPU stages in the arena.
program::StateLayout lay_out(const ir::Module& module, const Plan& plan, int ranks);

// Lowers and checks the programs of one role.
class RoleBuilder {
 public:
  // The role has its module. `reports` says where passes over its programs are dumped and timed.
  RoleBuilder(Role& role, const Plan& plan, int ranks, program::PassReports reports = {});

  // Nothing where the module has no such graph.
  void lower(const std::string& name, const std::string& body, program::LowerOptions options);
  void lower(const std::string& name, const std::string& body);

  const program::CheckReport& checked() const { return checked_; }

 private:
  Role& role_;
  const Plan& plan_;
  program::PassReports reports_;
  program::CheckReport checked_;
};

}  // namespace trireme::compiler
