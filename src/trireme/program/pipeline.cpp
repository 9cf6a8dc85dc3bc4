#include <algorithm>
#include <chrono>
#include <fstream>

#include "trireme/core/error.h"
#include "trireme/program/capture_regions.h"
#include "trireme/program/check.h"
#include "trireme/program/deferred_gradients.h"
#include "trireme/program/host_updates.h"
#include "trireme/program/launch_groups.h"
#include "trireme/program/lifetimes.h"
#include "trireme/program/lower.h"
#include "trireme/program/memory_plan.h"
#include "trireme/program/messages.h"
#include "trireme/program/pages.h"
#include "trireme/program/pass.h"
#include "trireme/program/print.h"
#include "trireme/program/verify.h"
#include "trireme/program/workspaces.h"

namespace trireme::program {
namespace {

constexpr const char* kMemoryPlan = "memory-plan";

constexpr Pass kPasses[] = {
    {"deferred-gradients", "before everything that is scheduled around the order of launches",
     [](Program& p, const LowerOptions& o) {
       if (o.collectives.overlap && o.defer_gradients && !o.weight_gradients.overlap) defer_weight_gradients(p);
     }},
    {"early-host-updates",
     "before copies, which are scheduled around where the stores and loads of these updates then stand",
     [](Program& p, const LowerOptions&) { start_host_updates_early(p); }},
    {"copies",
     "before collectives: loads move over the instructions of the compute stream, of which collectives still are",
     [](Program& p, const LowerOptions& o) { schedule_copies(p, o.copies, o.collectives.overlap); }},
    {"collectives", "after copies, whose events a collective that starts earlier must still wait for",
     [](Program& p, const LowerOptions& o) { schedule_collectives(p, o.collectives); }},
    {"messages", "after collectives, which move to where their operands are: a message stays with its action",
     [](Program& p, const LowerOptions& o) { schedule_messages(p, o.messages); }},
    {"weight-gradients", "after collectives: what these have taken to their stream is no longer the compute stream's",
     [](Program& p, const LowerOptions& o) { overlap_weight_gradients(p, o.weight_gradients); }},
    {"host-update-order", "when every instruction has its place and its stream: the last to add events",
     [](Program& p, const LowerOptions&) { order_host_updates(p); }},
    {"lifetimes", "when order and events are final: a buffer lives until the compute stream has waited for its users",
     [](Program& p, const LowerOptions&) { find_lifetimes(p); }},
    {"reuse", "needs lifetimes, and leaves fewer buffers to place",
     [](Program& p, const LowerOptions& o) {
       if (o.reuse_in_place) reuse_dying_inputs(p);
     }},
    {"workspaces", "after reuse, which must not take a workspace for a dying input",
     [](Program& p, const LowerOptions&) { add_workspaces(p); }},
    {"pages", "when all buffers exist, before they are placed by their sizes",
     [](Program& p, const LowerOptions&) { round_to_pages(p); }},
    {kMemoryPlan, "when every buffer has its size and its lifetime",
     [](Program& p, const LowerOptions&) { plan_memory(p); }},
    {"launch-groups", "needs the places of all bytes: members of a group must not meet in memory",
     [](Program& p, const LowerOptions&) { find_launch_groups(p); }},
    {"capture-regions", "last: what is captured is the program as it runs",
     [](Program& p, const LowerOptions&) { find_capture_regions(p); }},
};

void dump(const PassReports& reports, std::size_t number, const char* pass, const Program& program) {
  std::error_code error;
  std::filesystem::create_directories(reports.dump, error);
  if (error) fail("cannot make the folder {}: {}", reports.dump.string(), error.message());
  const std::filesystem::path file =
      reports.dump / fmt::format("{:02}-{}-{}.txt", reports.first_number + number, program.name, pass);
  std::ofstream out(file);
  out << to_text(program);
  out.close();
  if (!out) fail("cannot write {}", file.string());
}

}  // namespace

std::span<const Pass> program_passes() { return kPasses; }

void run_passes(Program& program, const LowerOptions& options, std::span<const Pass> passes) {
  const PassReports& reports = options.reports;
  verify(program);
  if (!reports.dump.empty()) dump(reports, 0, "lower", program);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    const auto start = std::chrono::steady_clock::now();
    try {
      pass.run(program, options);
      verify(program);
      if (pass.name == kMemoryPlan && reports.checked != nullptr) *reports.checked = check(program);
    } catch (Error& e) {
      throw e.within(fmt::format("pass {} of program '{}'", pass.name, program.name));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!reports.dump.empty()) dump(reports, i + 1, pass.name, program);
    if (reports.on_pass) reports.on_pass(fmt::format("{}-{}", program.name, pass.name), seconds);
  }
}

}  // namespace trireme::program
