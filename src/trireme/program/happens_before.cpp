#include "trireme/program/happens_before.h"

#include <algorithm>
#include <map>
#include <string>

#include "trireme/program/messages.h"

namespace trireme::program {

HappensBefore::HappensBefore(const Program& program)
    : program_(program),
      streams_(static_cast<std::size_t>(program.streams())),
      now_(streams_ * streams_, 0),
      at_start_(program.instructions.size() * streams_),
      position_(program.instructions.size(), kUnknown),
      transfer_(program.instructions.size(), kUnknown),
      learned_(streams_),
      learned_at_start_(program.instructions.size(), 0),
      taken_over_(streams_ * streams_, 0) {
  std::map<std::string, std::int32_t> last_of;  // by group of messages
  for (std::size_t i = 0; i < transfer_.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const bool sends = instruction.kind == Instruction::Kind::send;
    if (!sends && !program.moves_on_disk(instruction)) continue;
    transfer_[i] = static_cast<std::int32_t>(earlier_.size());
    earlier_.push_back(kUnknown);
    if (!sends) continue;
    std::int32_t& last = last_of.emplace(message_group(instruction), kUnknown).first->second;
    earlier_.back() = last;
    last = transfer_[i];
  }
  known_from_.assign(earlier_.size() * streams_, kUnknown);
}

void HappensBefore::learn(std::size_t stream, std::int32_t transfer) {
  const auto first = static_cast<std::ptrdiff_t>(learned_[stream].size());
  for (; transfer != kUnknown && known_from(transfer, stream) == kUnknown;
       transfer = earlier_[static_cast<std::size_t>(transfer)]) {
    known_from(transfer, stream) = now(stream, stream);
    learned_[stream].push_back(transfer);
  }
  // The earlier first: no prefix has a later one alone.
  std::reverse(learned_[stream].begin() + first, learned_[stream].end());
}

void HappensBefore::wait(std::size_t i, std::size_t from) {
  const std::size_t stream = stream_of(i);
  const std::size_t other = stream_of(from);
  for (std::size_t s = 0; s < streams_; ++s) now(stream, s) = std::max(now(stream, s), at_start_[from * streams_ + s]);
  std::int32_t& taken = taken_over_[stream * streams_ + other];
  for (; taken < learned_at_start_[from]; ++taken) learn(stream, learned_[other][static_cast<std::size_t>(taken)]);
  if (transfer_[from] != kUnknown)
    learn(stream, transfer_[from]);
  else
    now(stream, other) = std::max(now(stream, other), position_[from] + 1);
}

void HappensBefore::start(std::size_t i) {
  const std::size_t stream = stream_of(i);
  for (std::size_t s = 0; s < streams_; ++s) at_start_[i * streams_ + s] = now(stream, s);
  learned_at_start_[i] = static_cast<std::int32_t>(learned_[stream].size());
  position_[i] = now(stream, stream)++;
}

bool HappensBefore::before(std::size_t a, std::size_t b) const {
  if (position_[a] == kUnknown) return false;
  const std::size_t stream = stream_of(b);
  const bool started = position_[b] != kUnknown;
  if (transfer_[a] != kUnknown) {
    const std::int32_t first = known_from_[static_cast<std::size_t>(transfer_[a]) * streams_ + stream];
    return first != kUnknown && first <= (started ? position_[b] : now_[stream * streams_ + stream]);
  }
  const std::int32_t* clock = started ? &at_start_[b * streams_] : &now_[stream * streams_];
  return clock[stream_of(a)] > position_[a];
}

}  // namespace trireme::program
