#include "trireme/program/capture_regions.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

using ir::index;

constexpr std::int32_t kWorthCapturing = 8;  // instructions

bool needs_host(const Instruction& instruction) {
  return instruction.communicates() || is_between_ranks(instruction.stream);
}

// By event: the instruction that records it.
std::vector<std::int32_t> recorders(const Program& program) {
  std::vector<std::int32_t> recorder(index(program.events()), kNone);
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if (const std::int32_t event = program.instructions[i].records; event != kNone)
      recorder[index(event)] = static_cast<std::int32_t>(i);
  return recorder;
}

// By instruction: its region; none: as many as there are.
std::vector<std::size_t> regions_of(const Program& program) {
  std::vector<std::size_t> region_of(program.instructions.size(), program.capture_regions.size());
  for (std::size_t r = 0; r < program.capture_regions.size(); ++r)
    for (std::int32_t i = program.capture_regions[r].first; i < program.capture_regions[r].last; ++i)
      region_of[index(i)] = r;
  return region_of;
}

// What an instruction waits for of those that need the host.
std::vector<std::int32_t> waits_for_host(const Program& program, const std::vector<std::int32_t>& recorder,
                                         const Instruction& instruction) {
  std::vector<std::int32_t> events;
  for (const std::int32_t event : instruction.waits)
    if (needs_host(program.instructions[index(recorder[index(event)])])) events.push_back(event);
  return events;
}

}  // namespace

void find_capture_regions(Program& program) {
  program.capture_regions.clear();
  if (program.device == device::Kind::cpu) return;
  const std::vector<Instruction>& instructions = program.instructions;
  const auto size = static_cast<std::int32_t>(instructions.size());
  const std::vector<std::int32_t> recorder = recorders(program);
  for (std::int32_t first = 0; first < size;) {
    if (needs_host(instructions[index(first)])) {
      ++first;
      continue;
    }
    CaptureRegion region{.first = first,
                         .last = first + 1,
                         .waits = waits_for_host(program, recorder, instructions[index(first)]),
                         .records = {}};
    while (region.last < size && !needs_host(instructions[index(region.last)]) &&
           waits_for_host(program, recorder, instructions[index(region.last)]).empty())
      ++region.last;
    first = region.last;
    if (region.last - region.first >= kWorthCapturing) program.capture_regions.push_back(std::move(region));
  }
  const std::vector<std::size_t> region_of = regions_of(program);
  std::vector<bool> leaves(recorder.size(), false);  // by event: its region
  for (std::size_t i = 0; i < instructions.size(); ++i)
    for (const std::int32_t event : instructions[i].waits)
      if (region_of[index(recorder[index(event)])] != region_of[i]) leaves[index(event)] = true;
  for (std::size_t e = 0; e < recorder.size(); ++e) {
    if (!leaves[e]) continue;
    if (const std::size_t r = region_of[index(recorder[e])]; r < program.capture_regions.size())
      program.capture_regions[r].records.push_back(static_cast<std::int32_t>(e));
  }
}

void verify_capture_regions(const Program& program) {
  std::int32_t end = 0;
  for (const CaptureRegion& region : program.capture_regions) {
    if (region.first < end || region.last <= region.first || index(region.last) > program.instructions.size())
      fail("the capture region of instructions {} to {} is empty or overlaps the one before it", region.first,
           region.last - 1);
    end = region.last;
  }
  const std::vector<std::int32_t> recorder = recorders(program);
  const std::vector<std::size_t> region_of = regions_of(program);
  const auto lists = [](const std::vector<std::int32_t>& events, std::int32_t event) {
    return std::find(events.begin(), events.end(), event) != events.end();
  };
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const std::size_t own = region_of[i];
    const bool captured = own < program.capture_regions.size();
    if (captured && needs_host(instruction)) fail("{} needs the host and is captured", describe(program, i));
    if (captured)
      for (const std::int32_t event : waits_for_host(program, recorder, instruction))
        if (!lists(program.capture_regions[own].waits, event))
          fail("{} waits for event {}, which needs the host, and its capture region does not", describe(program, i),
               event);
    for (const std::int32_t event : instruction.waits) {
      const std::size_t from = region_of[index(recorder[index(event)])];
      if (from != own && from < program.capture_regions.size() && !lists(program.capture_regions[from].records, event))
        fail("{} waits for event {}, which its capture region does not record", describe(program, i), event);
    }
  }
}

}  // namespace trireme::program
