#include "trireme/program/schedule/generate.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/pipedream.h"
#include "trireme/program/schedule/zero_bubble.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;
using Pipeline = PipelineName::Kind;

const std::vector<std::pair<std::string, Pipeline>>& names() {
  static const std::vector<std::pair<std::string, Pipeline>> all = {
      {"sequential", Pipeline::sequential},
      {"gpipe", Pipeline::gpipe},
      {"1f1b", Pipeline::one_f_one_b},
      {"zero-bubble", Pipeline::zero_bubble},
      {"zero-bubble:auto", Pipeline::zero_bubble_auto},
      {"pipedream", Pipeline::pipedream},
      {"pipedream-2bw", Pipeline::pipedream_2bw},
  };
  return all;
}

constexpr std::string_view kInterleaved = "interleaved:";
constexpr std::string_view kFile = "file:";

// `warm_up` forwards, then a forward and a backward in turn, then the backwards that are left; forwards and backwards
// are micro-batches and chunks in their order.
using Units = std::vector<std::pair<int, int>>;
std::vector<Action> alternate(std::size_t warm_up, const Units& forwards, const Units& backwards) {
  std::vector<Action> actions;
  std::size_t f = 0, b = 0;
  const auto forward = [&] {
    actions.push_back({Kind::forward, forwards[f].first, forwards[f].second});
    ++f;
  };
  while (f < std::min(warm_up, forwards.size())) forward();
  while (b < backwards.size()) {
    if (f < forwards.size()) forward();
    actions.push_back({Kind::backward, backwards[b].first, backwards[b].second});
    ++b;
  }
  actions.push_back({Kind::update});
  return actions;
}

Units in_order(int micro_batches) {
  Units units;
  for (int micro = 0; micro < micro_batches; ++micro) units.emplace_back(micro, 0);
  return units;
}

const Schedule& given_schedule(const ScheduleRequest& request) {
  TRI_CHECK(request.given.has_value(), "the schedule {} was not read", request.pipeline.path);
  const Schedule& schedule = *request.given;
  if (schedule.stage_count() != request.stages || schedule.micro_batches != request.micro_batches)
    refuse("{}: it has {} stages and {} micro-batches, and {} and {} are wanted", request.pipeline.path,
           schedule.stage_count(), schedule.micro_batches, request.stages, request.micro_batches);
  return schedule;
}

}  // namespace

Schedule read_schedule(const std::string& path) {
  try {
    std::ifstream in(path);
    if (!in || std::filesystem::is_directory(path)) refuse("cannot be read as a file");
    ScheduleLines lines;
    Schedule schedule = parse_schedule(std::string{std::istreambuf_iterator<char>(in), {}}, &lines);
    check_schedule(schedule, lines);
    return schedule;
  } catch (Error& e) {
    throw e.within(path);
  }
}

PipelineName parse_pipeline(std::string_view text) {
  for (const auto& [name, kind] : names())
    if (text == name) return {kind};
  if (text.starts_with(kFile) && text.size() > kFile.size())
    return {Pipeline::file, 1, std::string(text.substr(kFile.size()))};
  if (text.starts_with(kInterleaved)) {
    const std::string_view number = text.substr(kInterleaved.size());
    int chunks = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), chunks);
    if (error == std::errc() && end == number.data() + number.size() && chunks >= 1)
      return {Pipeline::interleaved, chunks};
    refuse("'{}' is no pipeline: interleaved:V has V chunks per stage, such as interleaved:2", text);
  }
  std::vector<std::string> candidates = {"interleaved:V", "file:PATH"};
  for (const auto& [name, kind] : names()) candidates.push_back(name);
  const auto near = nearest(text, candidates);
  refuse("'{}' is no pipeline: those are {}{}", text, fmt::join(candidates, ", "),
         near ? "; did you mean '" + *near + "'?" : "");
}

Schedule make_schedule(const ScheduleRequest& r) {
  if (r.stages < 1 || r.micro_batches < 1)
    refuse("a pipeline has at least one stage and one micro-batch, not {} and {}", r.stages, r.micro_batches);
  switch (r.pipeline.kind) {
    case Pipeline::sequential: return sequential_schedule(r.stages, r.micro_batches);
    case Pipeline::gpipe: return gpipe_schedule(r.stages, r.micro_batches);
    case Pipeline::one_f_one_b: return one_f_one_b_schedule(r.stages, r.micro_batches);
    case Pipeline::interleaved: return interleaved_schedule(r.stages, r.micro_batches, r.pipeline.chunks);
    case Pipeline::zero_bubble: return zero_bubble_schedule(r.stages, r.micro_batches);
    case Pipeline::zero_bubble_auto: return zero_bubble_auto_schedule(r.stages, r.micro_batches, r.max_held, r.costs);
    case Pipeline::pipedream: return pipedream_schedule(r.stages, r.micro_batches);
    case Pipeline::pipedream_2bw: return pipedream_2bw_schedule(r.stages, r.micro_batches);
    case Pipeline::file: return given_schedule(r);
  }
  TRI_CHECK(false, "no such pipeline");
}

Schedule sequential_schedule(int stages, int micro_batches) {
  return {.micro_batches = micro_batches,
          .stages = StageActions(static_cast<std::size_t>(stages), plain_order({.micro_batches = micro_batches}))};
}

Schedule gpipe_schedule(int stages, int micro_batches) {
  const Units units = in_order(micro_batches);
  return {.micro_batches = micro_batches,
          .stages = StageActions(static_cast<std::size_t>(stages), alternate(units.size(), units, units))};
}

Schedule one_f_one_b_schedule(int stages, int micro_batches) {
  Schedule schedule{.micro_batches = micro_batches, .stages = {}};
  const Units units = in_order(micro_batches);
  for (int i = 0; i < stages; ++i)
    schedule.stages.push_back(alternate(static_cast<std::size_t>(stages - 1 - i), units, units));
  return schedule;
}

Schedule interleaved_schedule(int stages, int micro_batches, int chunks) {
  Schedule schedule{.micro_batches = micro_batches, .chunks = chunks, .stages = {}};
  Units forwards, backwards;
  for (int group = 0; group < micro_batches; group += stages)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int micro = group; micro < group + stages; ++micro) {
        forwards.emplace_back(micro, chunk);
        backwards.emplace_back(micro, chunks - 1 - chunk);
      }
  for (int i = 0; i < stages; ++i) {
    const int warm_up = 2 * (stages - 1 - i) + (chunks - 1) * stages;
    std::vector<Action>& actions =
        schedule.stages.emplace_back(alternate(static_cast<std::size_t>(warm_up), forwards, backwards));
    std::erase_if(actions, [&](const Action& a) { return a.micro >= micro_batches; });
  }
  return schedule;
}

}  // namespace trireme::program
