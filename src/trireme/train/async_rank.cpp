#include "trireme/train/async_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/compiler/async_stage.h"
#include "trireme/compiler/step_programs.h"
#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/train/bytes_of.h"

namespace trireme::train {

AsyncRank::AsyncRank(const Compiled& compiled, const Place& place)
    : Rank(compiled, place), reports_(place.groups->messages(compiler::kReports)) {
  lr_.resize(static_cast<std::size_t>(compiled.micro_batches));
  step_number_.resize(lr_.size());
  kinds_ = compiler::step_kinds(compiled.plan, role().find(std::string(compiler::kWarmPrograms) + "fill") != nullptr);
  speaks_ = true;
  for (std::size_t axis = 0; axis < coordinate().size(); ++axis)
    if (role().module.mesh.axes[axis].name != ir::kPipelineAxis && coordinate()[axis] != 0) speaks_ = false;
}

void AsyncRank::bind_updates(runtime::Executor& executor, const program::Program& program, std::int64_t step,
                             const std::function<double(std::int64_t)>& lr) {
  const Role::InFlight& in_flight = *role().in_flight;
  const std::int64_t micro_batches = compiled().micro_batches;
  for (const program::Instruction& i : program.instructions) {
    if (i.kind != program::Instruction::Kind::input) continue;
    const auto micro = static_cast<std::size_t>(i.micro);
    const std::int64_t owner = step - (i.micro < micro_batches - in_flight.micro_batches ? 0 : 1);
    if (i.name == "lr" && has_lr()) {
      lr_[micro] = static_cast<float>(lr(owner));
      executor.bind("lr", i.micro, one(lr_[micro]));
    } else if (i.name == "step" && has_step_number()) {
      // Updates, counted from 1.
      const std::int64_t number = in_flight.each ? owner * micro_batches + i.micro : owner;
      step_number_[micro] = static_cast<float>(number + 1);
      executor.bind("step", i.micro, one(step_number_[micro]));
    }
  }
}

void AsyncRank::read_updates(const runtime::Executor& executor, const program::Program& program, Report& report) {
  double losses = 0;
  int updates = 0;
  for (const program::NamedOutput& output : program.outputs) {
    const auto value = static_cast<double>(executor.scalar(output.name, output.micro));
    if (output.name == "loss") {
      losses += value;
      ++updates;
    } else if (output.name == "grad_norm") {
      norm_ = value;
    } else if (output.name == "finite" && value == 0) {
      report.sums[Report::not_finite] += 1;
    }
  }
  if (speaks_ && updates > 0) report.sums[Report::loss] += losses / updates;
}

void AsyncRank::run_program(const std::string& name, const Steps& steps, std::int64_t step, bool drains,
                            Report& report) {
  const program::Program* program = role().find(name);
  if (program == nullptr) return;  // a stage that is never ahead has nothing to drain
  runtime::Executor& executor = this->executor(name);
  if (!drains) bind_micro_batches(executor, steps.batch(here(), step), step, steps.seed);
  bind_updates(executor, *program, step, steps.lr);
  executor.run();
  read_updates(executor, *program, report);
}

void AsyncRank::send(Report& report) {
  const comm::Segment segment{report.sums.data(), Report::fields};
  report.request = reports_.start_all_reduce(std::span(&segment, 1), DType::f64, comm::Reduce::sum);
}

StepResult AsyncRank::received(Report& report) {
  report.request->wait();
  report.request.reset();
  return {static_cast<float>(report.sums[Report::loss]), std::numeric_limits<float>::quiet_NaN(),
          report.sums[Report::not_finite] == 0};
}

std::int64_t AsyncRank::run(const Steps& steps) {
  const auto around = [&](std::int64_t step) {
    compiler::AroundUpdate graphs = compiler::around_update(kind(step));
    const auto is_missing = [&](const std::string& graph) { return role().find(graph) == nullptr; };
    std::erase_if(graphs.before, is_missing);
    std::erase_if(graphs.behind, is_missing);
    return graphs;
  };
  const std::int64_t end = steps.first + steps.count;
  std::int64_t step = steps.first;
  // The pipeline is empty wherever something is done around a step, and where steps begin to update in another way.
  while (step < end) {
    for (const std::string& graph : around(step).before) executor(graph).run();
    Steps of_one_kind = steps;
    of_one_kind.first = step;
    const bool warm = compiler::is_warm(kind(step));
    do ++step;
    while (step < end && around(step - 1).behind.empty() && around(step).before.empty() &&
           compiler::is_warm(kind(step)) == warm);
    of_one_kind.count = step - of_one_kind.first;
    const std::int64_t done = run_of_one_kind(of_one_kind, warm ? compiler::kWarmPrograms : "");
    if (done < of_one_kind.count) return of_one_kind.first + done - steps.first;
    for (const std::string& graph : around(step - 1).behind) executor(graph).run();
  }
  return steps.count;
}

const std::string& AsyncRank::kind(std::int64_t step) const {
  std::size_t last = 0;
  while (last + 1 < kinds_.size() && kinds_[last + 1].from <= step) ++last;
  return kinds_[last].program;
}

std::int64_t AsyncRank::run_of_one_kind(const Steps& steps, const std::string& prefix) {
  const int period = role().in_flight->period;
  const auto done = [&](Report& report) {
    const StepResult result = received(report);
    if (steps.done) steps.done(here(), report.step, result);
  };
  std::int64_t end = steps.first + steps.count;
  std::int64_t step = steps.first;
  for (; step < end; ++step) {
    const std::int64_t since = step - steps.first;
    Report& own = report_[static_cast<std::size_t>(since % 2)];
    own = {.step = step};
    run_program(prefix + (since == 0 ? "fill" : compiler::slot_program("step", since, period)), steps, step, false,
                own);
    if (steps.interrupt && here() == 0 && steps.interrupt()) own.sums[Report::interrupt] = 1;
    send(own);
    if (since == 0) continue;
    Report& before = report_[static_cast<std::size_t>((since - 1) % 2)];
    done(before);
    if (before.sums[Report::interrupt] > 0) end = step + 1;
  }
  const std::int64_t count = step - steps.first;
  if (count == 0) return 0;
  Report drained{.step = step - 1};
  run_program(prefix + compiler::slot_program("drain", count, period), steps, step, true, drained);
  Report& last = report_[static_cast<std::size_t>((count - 1) % 2)];
  // With what was in flight, the last step is done.
  const StepResult filled = received(last);
  // Every stage's last update is the same one now, whose norm is that of all stages.
  if (speaks_) drained.sums[Report::norm_square] = norm_ * norm_;
  send(drained);
  StepResult result = received(drained);
  result.grad_norm = static_cast<float>(std::sqrt(drained.sums[Report::norm_square]));
  result.loss += filled.loss;
  result.finite = result.finite && filled.finite;
  if (steps.done) steps.done(here(), last.step, result);
  return count;
}

StepResult AsyncRank::step(const data::Batch& batch, std::int64_t step, double lr, std::int64_t seed) {
  StepResult result;
  run({.first = step,
       .count = 1,
       .seed = seed,
       .lr = [&](std::int64_t) { return lr; },
       .batch = [&](std::size_t, std::int64_t) -> const data::Batch& { return batch; },
       .done = [&](std::size_t, std::int64_t, const StepResult& r) { result = r; }});
  return result;
}

std::optional<runtime::Executor::BadTensor> AsyncRank::explain(const data::Batch&, std::int64_t, double, std::int64_t) {
  return std::nullopt;
}

}  // namespace trireme::train
