#include "trireme/cli/inspect_schedule.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "trireme/cli/output.h"
#include "trireme/cli/preparation.h"
#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/program/memory_plan.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/picture.h"
#include "trireme/train/compile.h"
#include "trireme/train/config.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

using program::Schedule;
using program::ScheduleTiming;

constexpr int kMaxStages = 4096;
constexpr int kMaxMicroBatches = 65536;
constexpr int kUsualWidth = 120;
constexpr int kMaxWidth = 65536;
constexpr int kDrawnSteps = 2;  // of an asynchronous pipeline, filled and drained

// The mesh of a configuration with another number of stages.
ir::Mesh with_stages(const train::Config& config, int stages) {
  ir::Mesh mesh = train::mesh_of(config);
  if (mesh.size_of(ir::kPipelineAxis) == stages) return mesh;
  std::erase_if(mesh.axes, [](const ir::Mesh::Axis& axis) { return axis.name == ir::kPipelineAxis; });
  mesh.axes.insert(mesh.axes.begin(), {ir::kPipelineAxis, stages});
  return mesh;
}

// The schedule that the plan of a run has kept.
std::optional<Schedule> kept_schedule(const std::optional<train::Decisions>& plan) {
  if (!plan || plan->schedule.empty()) return std::nullopt;
  return program::parse_schedule(fmt::format("{}", fmt::join(plan->schedule, "\n")));
}

// What the configuration says where the arguments say nothing; `kept` is its schedule where its file is gone.
ScheduleArguments completed(const Context& context, const std::string& file, ScheduleArguments a,
                            std::optional<Schedule>& kept) {
  // A schedule that is given as a file has its own.
  if (const program::PipelineName name = program::parse_pipeline(a.pipeline.empty() ? "1f1b" : a.pipeline);
      name.kind == program::PipelineName::Kind::file) {
    const Schedule given = program::read_schedule(name.path);
    if (a.stages == 0) a.stages = given.stage_count();
    if (a.micro_batches == 0) a.micro_batches = given.micro_batches;
  }
  if (!file.empty() || !context.overrides.empty()) {
    train::Followed followed =
        train::load_shown("", file.empty() ? "quickstart" : file, context.overrides, context.registry->models);
    train::Config& config = followed.config;
    if (a.pipeline.empty()) kept = kept_schedule(followed.plan);
    if (a.stages == 0) a.stages = static_cast<int>(train::mesh_of(config).size_of(ir::kPipelineAxis));
    // How many micro-batches a batch is cut in goes by the stages.
    config.parallel.mesh = with_stages(config, a.stages).str();
    if (a.micro_batches == 0) a.micro_batches = static_cast<int>(config.train.batch / train::micro_batch_rows(config));
    if (a.pipeline.empty()) a.pipeline = fmt::format("{}", config.parallel.pipeline);
  }
  if (a.pipeline.empty()) a.pipeline = "1f1b";
  if (a.stages == 0) refuse("--stages is missing: `trireme inspect schedule --stages 4 --micro-batches 8`");
  if (a.micro_batches == 0)
    refuse("--micro-batches is missing: `trireme inspect schedule --stages {} --micro-batches {}`", a.stages,
           4 * static_cast<std::int64_t>(a.stages));
  return a;
}

program::ScheduleRequest request_of(const ScheduleArguments& a, const std::optional<Schedule>& kept) {
  program::ScheduleRequest request;
  request.pipeline = program::parse_pipeline(a.pipeline);
  if (request.pipeline.kind == program::PipelineName::Kind::file)
    request.given = kept ? kept : program::read_schedule(request.pipeline.path);
  request.stages = a.stages;
  request.micro_batches = a.micro_batches;
  if (!a.max_held.empty() && request.pipeline.kind != program::PipelineName::Kind::zero_bubble_auto)
    refuse("--max-held is for --pipeline zero-bubble:auto; the other pipelines hold what they need");
  request.max_held = a.max_held;
  if (a.costs.empty()) return request;
  if (a.costs.size() != 3 || !(*std::min_element(a.costs.begin(), a.costs.end()) > 0))
    refuse("--costs are three positive numbers: of a forward, of input and of weight gradients, as in --costs 1,1,1");
  request.costs.stages = {{a.costs[0], a.costs[1], a.costs[2]}};
  return request;
}

// What a rank of each stage takes by the plan of a configuration.
struct StageMemory {
  std::vector<std::size_t> bytes;
  std::vector<std::size_t> activations;  // of them, at the peak
  std::vector<int> max_held;             // micro-batches that zero-bubble:auto may hold, where a limit says so
  std::string unknown;                   // why there are none
};

// The settings that make a configuration train by the schedule which the arguments ask for.
std::vector<std::string> settings_for(const train::Config& config, const ScheduleArguments& a) {
  std::vector<std::string> settings;
  const ir::Mesh mesh = with_stages(config, a.stages);
  if (train::mesh_of(config).size_of(ir::kPipelineAxis) != a.stages) settings.push_back("parallel.mesh=" + mesh.str());
  const std::int64_t share = config.train.batch / mesh.size_of(ir::kDataAxis);
  if (share % a.micro_batches != 0)
    refuse("{} rows of train.batch = {} are no {} equal micro-batches; the nearest is train.batch = {}", share,
           config.train.batch, a.micro_batches,
           std::max<std::int64_t>(1, share / a.micro_batches) * a.micro_batches * mesh.size_of(ir::kDataAxis));
  if (config.train.batch / train::micro_batch_rows(config) != a.micro_batches || !settings.empty())
    settings.push_back(fmt::format("train.micro_batch={}", share / a.micro_batches));
  if (a.stages > 1 && config.parallel.pipeline.text() != a.pipeline)
    settings.push_back("parallel.pipeline=" + a.pipeline);
  return settings;
}

StageMemory planned_memory(const Context& context, const std::string& file, const ScheduleArguments& a) {
  StageMemory memory;
  try {
    if (!a.max_held.empty()) refuse("--max-held is no key of a run, which holds what fits memory.limit");
    const std::string source = file.empty() ? "quickstart" : file;
    std::vector<std::string> settings = context.overrides;
    for (std::string& setting : settings_for(train::load_config(source, settings, context.registry->models), a))
      settings.push_back(std::move(setting));
    Preparation preparation("preparing");
    train::Followed followed = train::load_shown("", source, settings, context.registry->models);
    train::TrainerOptions options = planning_options(preparation);
    options.plan = std::move(followed.plan);
    const train::Trainer trainer(std::move(followed.config), *context.registry, options);
    const train::Compiled& c = trainer.compiled();
    memory.max_held = c.plan.max_held;
    memory.bytes.resize(static_cast<std::size_t>(c.plan.stages()));
    memory.activations.resize(memory.bytes.size());
    for (const train::Role& role : c.roles) {
      if (!role.takes_rows()) continue;
      const auto place = role.places.find(ir::kPipelineAxis);
      const std::size_t stage = place == role.places.end() ? 0 : static_cast<std::size_t>(place->second);
      const program::PeakReport peak = program::peak(role.largest());
      if (peak.bytes <= memory.bytes[stage]) continue;
      memory.bytes[stage] = peak.bytes;
      memory.activations[stage] = peak.categories[static_cast<std::size_t>(program::Category::activations)];
    }
  } catch (const Error& e) {
    if (e.kind() != Error::Kind::request) throw;
    memory.unknown = e.message();
  }
  return memory;
}

// What is printed of a schedule.
struct Shown {
  Schedule schedule;
  Schedule drawn;  // a step, or a few of an asynchronous pipeline
  ScheduleTiming timing;
  double bubble = 0;                       // of the steady state of an asynchronous pipeline
  std::optional<StageMemory> memory = {};  // where there is a configuration
};

Shown shown(const program::ScheduleRequest& request) {
  Shown s;
  s.schedule = program::make_schedule(request);
  program::check_schedule(s.schedule);
  s.drawn = program::unrolled(s.schedule, kDrawnSteps);
  s.timing = program::time_schedule(s.drawn, request.costs);
  s.bubble = s.schedule.asynchronous() ? program::steady_state(s.schedule, request.costs).bubble : s.timing.bubble();
  return s;
}

std::vector<std::string> lines_of(const program::StageActions& stages) {
  std::vector<std::string> lines;
  for (const std::vector<program::Action>& actions : stages) lines.push_back(program::to_text(actions));
  return lines;
}

std::string json_of(const Shown& s) {
  nlohmann::ordered_json out;
  out["stages"] = lines_of(s.schedule.stages);
  if (s.schedule.asynchronous()) {
    out["fill"] = lines_of(s.schedule.fill);
    out["drain"] = lines_of(s.schedule.drain);
    out["weight_versions"] = program::weight_versions(s.schedule);
  } else {
    out["makespan"] = s.timing.makespan;
  }
  out["bubble"] = s.bubble;
  out["held"] = program::held(s.schedule);
  if (s.memory && s.memory->unknown.empty()) {
    out["memory_bytes"] = s.memory->bytes;
    out["activation_bytes"] = s.memory->activations;
  }
  return out.dump() + "\n";
}

bool splits_backward(const Schedule& schedule) {
  for (const auto& actions : schedule.stages)
    for (const program::Action& action : actions)
      if (action.kind == program::Action::Kind::weight_gradient) return true;
  return false;
}

std::string title_of(const std::string& pipeline, const Schedule& s) {
  return fmt::format("{}: {} stage{}, {} micro-batch{}{}", pipeline, s.stage_count(), s.stage_count() == 1 ? "" : "s",
                     s.micro_batches, s.micro_batches == 1 ? "" : "es",
                     s.chunks == 1 ? "" : fmt::format(", {} chunks per stage", s.chunks));
}

std::string text_of(const Shown& s, const std::string& title, const program::PictureOptions& options) {
  const bool split = splits_backward(s.schedule);
  std::string out = title + "\n\n" + program::picture(s.drawn, s.timing, options) + "\n";
  out += split ? "F forward, B input gradients, W weight gradients, ·· idle\n" : "F forward, B backward, ·· idle\n";
  if (s.schedule.asynchronous())
    out += fmt::format("bubble    {:.1f}% idle time in steady state; shown are {} steps, filled and drained\n",
                       100 * s.bubble, kDrawnSteps);
  else
    out += fmt::format("bubble    {:.1f}% idle time; the step takes {:g}{}\n", 100 * s.bubble, s.timing.makespan,
                       split ? fmt::format(", a stage at most {:g}", s.timing.longest_stage()) : "");
  out += fmt::format("held      {} micro-batches{}, by stage: activations are saved for so many\n",
                     fmt::join(program::held(s.schedule), " "), s.schedule.chunks == 1 ? "" : " of a chunk");
  if (s.schedule.asynchronous())
    out += fmt::format("versions  {} of the weights, by stage\n", fmt::join(program::weight_versions(s.schedule), " "));
  const auto each = [](const std::vector<std::size_t>& bytes) {
    std::vector<std::string> texts;
    texts.reserve(bytes.size());
    for (const std::size_t b : bytes) texts.push_back(format_bytes(b));
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  if (s.memory && s.memory->unknown.empty())
    out += fmt::format("memory    {} on a rank, by stage; of it activations {}\n", each(s.memory->bytes),
                       each(s.memory->activations));
  else if (s.memory)
    out += fmt::format("memory    not planned: {}\n", s.memory->unknown);
  return out;
}

}  // namespace

void ScheduleArguments::add_to(CLI::App& command) {
  command.add_option("--stages", stages, "schedule: stages of the pipeline (by default the configuration's pp)")
      ->check(CLI::Range(1, kMaxStages));
  command.add_option("--micro-batches", micro_batches, "schedule: micro-batches of a step")
      ->check(CLI::Range(1, kMaxMicroBatches));
  command.add_option("--pipeline", pipeline,
                     "schedule: sequential, gpipe, 1f1b, interleaved:V, zero-bubble, zero-bubble:auto, pipedream, "
                     "pipedream-2bw or file:PATH");
  command
      .add_option("--max-held", max_held, "schedule: zero-bubble:auto holds at most so many micro-batches, by stage")
      ->delimiter(',');
  command.add_option("--costs", costs, "schedule: time of a forward, of input and of weight gradients (1,1,1)")
      ->delimiter(',');
  command.add_option("--width", width, "schedule: columns of the picture")->check(CLI::Range(1, kMaxWidth));
  command.add_option("--svg", svg, "schedule: writes the picture to a file, in the place of another such picture");
  command.add_flag("--json", json, "schedule: for scripts");
}

void ScheduleArguments::expect_none(const std::string& what) const {
  const std::vector<std::pair<const char*, bool>> given = {
      {"--stages", stages != 0},         {"--micro-batches", micro_batches != 0},
      {"--pipeline", !pipeline.empty()}, {"--max-held", !max_held.empty()},
      {"--costs", !costs.empty()},       {"--width", width != 0},
      {"--svg", !svg.empty()},           {"--json", json}};
  for (const auto& [name, is] : given)
    if (is) refuse("{} is of `trireme inspect schedule`, not of `trireme inspect {}`", name, what);
}

int inspect_schedule(const Context& context, const std::string& config, const ScheduleArguments& given) {
  std::optional<Schedule> kept;
  const ScheduleArguments arguments = completed(context, config, given, kept);
  if (!arguments.svg.empty()) {
    check_replaceable(arguments.svg, program::kSvgBeginning, "schedule drawn by trireme", "--svg " + arguments.svg);
    check_file_writable(arguments.svg, "--svg " + arguments.svg);
  }
  program::ScheduleRequest request = request_of(arguments, kept);
  std::optional<StageMemory> memory;
  if (!config.empty() || !context.overrides.empty()) memory = planned_memory(context, config, arguments);
  if (memory && arguments.max_held.empty()) request.max_held = memory->max_held;
  Shown s = shown(request);
  s.memory = std::move(memory);
  const std::string title = title_of(arguments.pipeline, s.schedule);
  const int numbers = s.schedule.asynchronous() ? s.schedule.micro_batches : 0;
  if (!arguments.svg.empty())
    write_file_atomically(arguments.svg,
                          program::schedule_svg(s.drawn, s.timing, {.title = title, .micro_batches = numbers}));
  const int terminal = terminal_width(stdout);
  const int width = arguments.width > 0 ? arguments.width : terminal > 0 ? terminal : kUsualWidth;
  const bool colour = terminal > 0 && std::getenv("NO_COLOR") == nullptr;
  say(stdout,
      arguments.json ? json_of(s) : text_of(s, title, {.width = width, .colour = colour, .micro_batches = numbers}));
  return 0;
}

}  // namespace trireme::cli
