#include "trireme/cli/rank_timing.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "trireme/core/undisturbed.h"
#include "trireme/runtime/communication_time.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

using Traces = std::vector<std::unique_ptr<runtime::Trace>>;  // by rank

// By instruction, in the order of the program: the spans of a run follow it.
std::vector<std::vector<double>> durations(const runtime::Trace& trace, std::size_t instructions) {
  std::vector<std::vector<double>> all(instructions);
  for (std::size_t s = 0; s < trace.all().size(); ++s) {
    const runtime::Trace::Span& span = trace.all()[s];
    all[s % instructions].push_back(std::chrono::duration<double>(span.end - span.begin).count());
  }
  return all;
}

// When a program would be done whose instructions take so long.
double walked(const program::Program& p, const std::vector<double>& seconds) {
  std::vector<double> streams(static_cast<std::size_t>(p.streams()), 0);
  std::vector<double> events(static_cast<std::size_t>(p.events()), 0);
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    const program::Instruction& instruction = p.instructions[i];
    double& now = streams[static_cast<std::size_t>(instruction.stream)];
    for (const std::int32_t event : instruction.waits) now = std::max(now, events[static_cast<std::size_t>(event)]);
    now += seconds[i];
    if (instruction.records != program::kNone) events[static_cast<std::size_t>(instruction.records)] = now;
  }
  return *std::max_element(streams.begin(), streams.end());
}

double allowed_by_order(const std::vector<const program::Program*>& programs, const Traces& traces) {
  struct OfRank {
    const program::Program* program = nullptr;
    std::vector<std::vector<double>> seconds;  // by instruction
    std::vector<std::size_t> communication;  // instructions that communicate: the same ones on ranks that have as many
  };
  std::vector<OfRank> all;
  for (std::size_t r = 0; r < traces.size(); ++r) {
    OfRank& rank = all.emplace_back();
    rank.program = programs[r];
    rank.seconds = durations(*traces[r], rank.program->instructions.size());
    for (std::size_t i = 0; i < rank.program->instructions.size(); ++i)
      if (rank.program->instructions[i].communicates()) rank.communication.push_back(i);
  }
  double longest = 0;
  for (const OfRank& rank : all) {
    std::vector<double> seconds;
    for (const std::vector<double>& each : rank.seconds) seconds.push_back(undisturbed(each));
    // One that comes early waits for the others meanwhile.
    for (std::size_t c = 0; c < rank.communication.size(); ++c)
      for (const OfRank& other : all) {
        if (other.communication.size() != rank.communication.size()) continue;
        const std::vector<double>& taken = other.seconds[other.communication[c]];
        double& least = seconds[rank.communication[c]];
        least = std::min(least, *std::min_element(taken.begin(), taken.end()));
      }
    longest = std::max(longest, walked(*rank.program, seconds));
  }
  return longest;
}

}  // namespace

RankTiming time_ranks(Context& context, const std::string& source, const std::vector<std::string>& settings, int steps,
                      bool traced) {
  std::vector<std::string> overrides = context.overrides;
  overrides.insert(overrides.end(), settings.begin(), settings.end());
  train::TrainerOptions options;
  options.write = false;
  train::Trainer trainer(train::load_config(source, overrides, context.registry->models), *context.registry, options);
  trainer.start();
  const train::Config& c = trainer.config();
  train::Session& session = trainer.session();
  data::Loader loader = trainer.batches();
  int at = 0;
  const auto step = [&] {
    const data::Batch& batch = loader.next();
    const auto begin = std::chrono::steady_clock::now();
    session.step(batch, at, train::learning_rate(c.train, at), c.train.seed);
    ++at;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  constexpr int kWarmup = 2;
  while (at < kWarmup) step();
  RankTiming t;
  std::vector<double> seconds;
  std::vector<double> exposed;
  for (int i = 0; i < steps; ++i) {
    const std::uint64_t sent = session.sent_bytes();
    seconds.push_back(step());
    exposed.push_back(session.step_executor().exposed_comm_seconds());
    t.sent = static_cast<double>(session.sent_bytes() - sent);
  }
  t.step = undisturbed(seconds);
  t.exposed = undisturbed(exposed);
  t.tokens = static_cast<double>(c.train.batch * trainer.data().train->tokens_per_sample());
  t.memory = trainer.compiled().arena_bytes();
  if (!traced) return t;
  Traces traces;
  std::vector<const program::Program*> programs;
  for (const auto& rank : session.ranks()) {
    programs.push_back(&rank->role().program(trainer.compiled().steps.back().program));
    traces.push_back(
        std::make_unique<runtime::Trace>(programs.back()->instructions.size() * static_cast<std::size_t>(steps)));
    rank->step_executor().set_trace(traces.back().get());
  }
  for (int i = 0; i < steps; ++i) step();
  for (const auto& rank : session.ranks()) rank->step_executor().set_trace(nullptr);
  const double runs = static_cast<double>(traces.size()) * steps;
  for (std::size_t r = 0; r < traces.size(); ++r) {
    const runtime::CommunicationTime sum = runtime::communication_time(*traces[r], *programs[r]);
    t.communication += sum.seconds / runs;
    t.hidden += sum.hidden / runs;
  }
  t.allowed = allowed_by_order(programs, traces);
  return t;
}

}  // namespace trireme::cli
