#include "trireme/program/concatenate.h"

#include <algorithm>
#include <map>

namespace trireme::program {

Program concatenated(std::span<const Program* const> programs) {
  Program all;
  if (programs.empty()) return all;
  all.name = programs.front()->name;
  all.mesh = programs.front()->mesh;
  all.device = programs.front()->device;
  std::int32_t events = 0;
  std::vector<std::int32_t> ended;  // events: the last of each stream of the program before
  for (const Program* program : programs) {
    const std::size_t start = all.instructions.size();
    const std::int32_t first_event = events;
    events += program->events();
    std::map<std::int32_t, std::size_t> last_on;  // stream → instruction
    for (const Instruction& instruction : program->instructions) {
      Instruction own = instruction;
      for (std::int32_t& event : own.waits) event += first_event;
      if (own.records != kNone) own.records += first_event;
      if (!last_on.contains(own.stream)) own.waits.insert(own.waits.end(), ended.begin(), ended.end());
      last_on[own.stream] = all.instructions.size();
      all.instructions.push_back(std::move(own));
    }
    if (all.instructions.size() == start) continue;
    const auto before = static_cast<std::int32_t>(start);
    for (const LaunchGroup& group : program->launch_groups)
      all.launch_groups.push_back({group.first + before, group.last + before});
    for (CaptureRegion region : program->capture_regions) {
      region.first += before;
      region.last += before;
      for (std::int32_t& event : region.waits) event += first_event;
      for (std::int32_t& event : region.records) event += first_event;
      all.capture_regions.push_back(std::move(region));
    }
    ended.clear();
    for (const auto& [stream, last] : last_on) {
      std::int32_t& event = all.instructions[last].records;
      if (event == kNone) event = events++;
      ended.push_back(event);
    }
    all.buffers.insert(all.buffers.end(), program->buffers.begin(), program->buffers.end());
  }
  return all;
}

}  // namespace trireme::program
