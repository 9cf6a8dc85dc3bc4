#pragma once
#include <vector>

#include "trireme/compiler/async_stage.h"
#include "trireme/compiler/role_builder.h"

namespace trireme::compiler {

// `options` of a step, made those of one of an asynchronous stage's programs.
program::LowerOptions async_options(const AsyncStage& stage, program::LowerOptions options, const ir::Module& module,
                                    AsyncStage::Part part, int steps, const std::string& update = "update");

// Lowers the programs that fill the pipeline, do a step and drain it. Gives which of them does which step. Refuses
// stages that share a parameter.
std::vector<StepProgram> lower_async_stage(RoleBuilder& builder, Role& role, const AsyncStage& stage,
                                           const program::LowerOptions& options);

// The programs of a role that take turns communicate and wait in the same order: numbers of slots are numbers of
// micro-batches modulo the slots, so that two micro-batches share a slot in one of the programs where they do in all.
// Whichever of them run together, a proof of one round is one of all. Throws, naming both programs, where it is not so.
void expect_same_order(const Compiled& c, const std::string& prefix = "");

// Concatenates, for each role, the programs of `steps` steps: from an empty pipeline through fill, steps and drain. One
// stage may receive in a later program than another sent in, so messages pair over the whole round. `prefix` selects
// programs by the beginning of their names (kWarmPrograms); the result is empty where there are none.
std::vector<program::Program> async_rounds(const Compiled& c, int steps, const std::string& prefix = "");

}  // namespace trireme::compiler
