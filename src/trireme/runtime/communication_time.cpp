#include "trireme/runtime/communication_time.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::runtime {

using program::Instruction;

CommunicationTime communication_time(const Trace& trace, const program::Program& program,
                                     const std::function<bool(const Instruction&)>& asked) {
  const std::vector<Trace::Span>& spans = trace.all();
  const std::size_t size = program.instructions.size();
  TRI_CHECK(trace.dropped() == 0 && spans.size() % size == 0, "not a trace of whole runs");
  // A run is recorded in the order of its program.
  const auto instruction = [&](std::size_t span) -> const Instruction& { return program.instructions[span % size]; };

  using Interval = std::pair<Trace::Clock::time_point, Trace::Clock::time_point>;
  std::vector<Interval> computed;
  for (std::size_t s = 0; s < spans.size(); ++s)
    if (instruction(s).kind == Instruction::Kind::launch) computed.emplace_back(spans[s].begin, spans[s].end);
  std::sort(computed.begin(), computed.end());
  // What streams compute at the same time counts once.
  std::vector<Interval> busy;
  for (const Interval& i : computed) {
    if (busy.empty() || i.first > busy.back().second)
      busy.push_back(i);
    else
      busy.back().second = std::max(busy.back().second, i.second);
  }

  const auto seconds = [](Trace::Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  CommunicationTime time;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    if (!instruction(s).communicates() || (asked && !asked(instruction(s)))) continue;
    const Trace::Span& span = spans[s];
    time.seconds += seconds(span.end - span.begin);
    auto i = std::partition_point(busy.begin(), busy.end(), [&](const Interval& b) { return b.second <= span.begin; });
    for (; i != busy.end() && i->first < span.end; ++i)
      time.hidden += seconds(std::min(i->second, span.end) - std::max(i->first, span.begin));
  }
  return time;
}

}  // namespace trireme::runtime
