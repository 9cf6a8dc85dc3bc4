#include "trireme/program/check_contents.h"

#include <algorithm>
#include <limits>

#include "trireme/core/error.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

bool sharded(const Place& place) { return place.count > 1 && place.stride > 0; }

// Calls f(begin, end) for the bytes of [begin, end) that some rank has at its place of [first, last), as rank 0 has
// them. Where ranks' bytes overlap, or many ranks are met, that is all of [first, last).
template <class F>
void for_each_rank(const Place& place, std::size_t first, std::size_t last, std::size_t begin, std::size_t end, F&& f) {
  if (end <= first || first == last) return;
  const std::size_t stride = place.stride;
  const std::size_t from = begin < last ? 0 : (begin - last) / stride + 1;
  const std::size_t to = std::min((end - first - 1) / stride, static_cast<std::size_t>(place.count) - 1);
  if (from > to) return;
  if (to - from > 1 || last - first > stride) return f(first, last);
  for (std::size_t rank = from; rank <= to; ++rank) {
    const std::size_t shift = rank * stride;
    f(std::max(first, begin > shift ? begin - shift : 0), std::min(last, end - shift));
  }
}

// The segments cover everything from 0 on.
template <class Segments>
void cut(Segments& segments, std::size_t at) {
  auto it = std::prev(segments.upper_bound(at));
  if (it->first == at) return;
  auto right = it->second;
  it->second.end = at;
  segments.emplace_hint(std::next(it), at, std::move(right));
}

}  // namespace

Contents::Contents(const Program& program, const HappensBefore& order)
    : p_(program), order_(order), value_bytes_(value_bytes()) {
  for (int tier = 0; tier < kTiers; ++tier) {
    Segment nothing;
    nothing.end = std::numeric_limits<std::size_t>::max();
    segments(tier).emplace(0, std::move(nothing));
  }
  for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
    const Buffer& state = p_.buffers[b];
    if (state.state == kNone) continue;
    for_each(state.tier, {state.offset, state.offset + state.bytes}, [&](std::size_t, Segment& segment) {
      segment.writer = kPersistent;
      segment.buffer = static_cast<BufferId>(b);
      segment.value = p_.values.empty() || state.state < 0 ? kNone : state.state;
      segment.valued = kPersistent;
      segment.whole = true;
    });
  }
}

template <class F>
void Contents::for_each(int tier, Range range, F&& f) {
  Segments& there = segments(tier);
  cut(there, range.begin);
  cut(there, range.end);
  for (auto it = there.lower_bound(range.begin); it != there.end() && it->first < range.end; ++it)
    f(it->first, it->second);
}

template <class F>
void Contents::for_each_touched(const Operand& o, std::size_t bytes, F&& f) {
  const std::size_t first = buffer(o).offset + o.offset;
  const std::size_t further = sharded(o.place) ? o.place.stride * static_cast<std::size_t>(o.place.count - 1) : 0;
  for_each(buffer(o).tier, {first, first + further + bytes}, [&](std::size_t begin, Segment& segment) {
    bool touched = !sharded(o.place);
    if (!touched)
      for_each_rank(o.place, first, first + bytes, begin, segment.end,
                    [&](std::size_t, std::size_t) { touched = true; });
    if (touched) f(begin, segment);
  });
}

std::string Contents::fault(const Segment& segment, std::size_t begin, const Operand& o) const {
  const std::string& holder = p_.buffers[static_cast<std::size_t>(segment.buffer)].name;
  // No state's: nothing else lies where states do.
  if (segment.buffer != o.buffer)
    return fmt::format("{} has written '{}' there", describe(p_, static_cast<std::size_t>(segment.writer)), holder);
  if (complete(segment, begin, o)) {
    const std::int32_t other = other_value(segment, begin, o);
    if (other == kSame || is_padding(begin, o)) return {};
    if (other == kPersistent) return fmt::format("it still holds what state '{}' held before the program", holder);
    return fmt::format("{} has written over it", describe(p_, static_cast<std::size_t>(other)));
  }
  return fmt::format("{} has written {}", describe(p_, static_cast<std::size_t>(segment.writer)),
                     segment.shards.empty() ? "less of it" : "one rank's shard of it alone");
}

bool Contents::complete(const Segment& segment, std::size_t begin, const Operand& o) const {
  bool complete = true;
  if (sharded(o.place) && segment.place == o.place) {
    const std::size_t first = buffer(o).offset + o.offset;
    for_each_rank(o.place, first, first + o.type.bytes(), begin, segment.end, [&](std::size_t from, std::size_t to) {
      for (const Shard& shard : segment.shards)
        if (shard.begin <= from) from = std::max(from, shard.end);
      complete = complete && (segment.whole || from >= to);
    });
  } else {
    complete = segment.whole;
    for (const Shard& shard : segment.shards)
      for_each_rank(segment.place, shard.begin, shard.end, begin, segment.end,
                    [&](std::size_t, std::size_t) { complete = false; });
  }
  return complete;
}

std::int32_t Contents::other_value(const Segment& segment, std::size_t begin, const Operand& o) const {
  // Shards that are read by another place, or in whole, are none of those that were written here.
  if (!sharded(o.place) || segment.place != o.place) return segment.value == o.value ? kSame : segment.valued;
  std::int32_t other = kSame;
  const std::size_t first = buffer(o).offset + o.offset;
  for_each_rank(o.place, first, first + o.type.bytes(), begin, segment.end, [&](std::size_t from, std::size_t to) {
    for (const Shard& shard : segment.shards) {
      if (shard.end <= from || shard.begin >= to) continue;
      if (shard.begin > from && segment.value != o.value) other = segment.valued;
      if (shard.value != o.value) other = shard.writer;
      from = shard.end;
    }
    if (from < to && segment.value != o.value) other = segment.valued;
  });
  return other;
}

// What is read of it is what it was before the program, whatever the value in front of it is.
bool Contents::is_padding(std::size_t begin, const Operand& o) const {
  return buffer(o).state != kNone && begin >= buffer(o).offset + value_bytes_[static_cast<std::size_t>(o.buffer)];
}

void Contents::declared(std::size_t i, const Operand& o) const {
  if (p_.values.empty() || buffer(o).state < 0) return;
  if (static_cast<std::size_t>(o.value) >= p_.values.size() ||
      p_.values[static_cast<std::size_t>(o.value)] != buffer(o).state)
    fail("{} writes over state '{}' what is not its contents", describe(p_, i), name(o));
}

void Contents::ordered(std::size_t a, std::size_t b) const {
  if (a != b && !order_.before(a, b))
    fail("{} and {} touch the same bytes, but nothing orders them", describe(p_, a), describe(p_, b));
}

void Contents::read(std::size_t i, const Operand& o) {
  if (o.buffer == kNone || o.type.bytes() == 0) return;
  for_each_touched(o, o.type.bytes(), [&](std::size_t begin, Segment& segment) {
    if (segment.writer == kNone) fail("{} reads '{}' before anything is written there", describe(p_, i), name(o));
    if (const std::string why = fault(segment, begin, o); !why.empty())
      fail("{} reads '{}', but {}", describe(p_, i), name(o), why);
    if (segment.writer != kPersistent) {
      ordered(static_cast<std::size_t>(segment.writer), i);
      ++conflicts_ordered_;
    }
    // What comes after this reader comes after those that were done when it started.
    std::size_t count = 1;
    std::erase_if(segment.readers, [&](const Reader& r) {
      const bool done = order_.before(static_cast<std::size_t>(r.instruction), i);
      count += done ? r.count : 0;
      return done;
    });
    segment.readers.push_back({static_cast<std::int32_t>(i), count});
  });
}

void Contents::follow(std::size_t i, Segment& segment) {
  if (segment.writer >= 0) {
    ordered(static_cast<std::size_t>(segment.writer), i);
    conflicts_ordered_ += static_cast<std::size_t>(segment.writer) == i ? 0 : 1;
  }
  for (const Reader& reader : segment.readers) {
    ordered(static_cast<std::size_t>(reader.instruction), i);
    conflicts_ordered_ += reader.count - (static_cast<std::size_t>(reader.instruction) == i ? 1 : 0);
  }
  segment.writer = static_cast<std::int32_t>(i);
  segment.readers.clear();
}

void Contents::write(std::size_t i, const Operand& o) {
  if (o.buffer == kNone || o.type.bytes() == 0) return;
  declared(i, o);
  const std::size_t begin = buffer(o).offset + o.offset;
  const Range written{begin, begin + o.type.bytes()};
  const std::size_t touched = p_.instructions[i].moves() ? buffer(o).moved(o.type.bytes()) : o.type.bytes();
  for_each_touched(o, touched, [&](std::size_t, Segment& segment) {
    follow(i, segment);
    if (sharded(o.place)) add_shard(i, segment, o, written, begin + touched);
  });
  if (sharded(o.place)) return;
  Segments& there = segments(buffer(o).tier);
  there.erase(there.lower_bound(begin), there.lower_bound(begin + touched));
  Segment fresh;
  fresh.writer = static_cast<std::int32_t>(i);
  fresh.buffer = o.buffer;
  fresh.value = o.value;
  fresh.valued = fresh.writer;
  fresh.end = begin + touched;
  there.emplace(written.end, fresh);  // the rest of a page; where there is none, the next segment begins
  fresh.end = written.end;
  fresh.whole = true;
  there.emplace(begin, std::move(fresh));
}

// Every rank writes `written`, in its place, and spoils what follows up to `end`.
void Contents::add_shard(std::size_t i, Segment& segment, const Operand& o, Range written, std::size_t end) {
  // Shards of another kind are forgotten, and so is what they were written over: nothing is taken for written that may
  // not be.
  const bool other = segment.buffer != o.buffer || (!segment.shards.empty() && segment.place != o.place);
  segment.whole = segment.whole && !other && end == written.end;
  segment.buffer = o.buffer;
  segment.place = o.place;
  std::vector<Shard> shards{{written.begin, written.end, o.value, static_cast<std::int32_t>(i)}};
  if (!other)
    for (const Shard& old : segment.shards) {
      if (old.begin < written.begin)
        shards.push_back({old.begin, std::min(old.end, written.begin), old.value, old.writer});
      if (old.end > end) shards.push_back({std::max(old.begin, end), old.end, old.value, old.writer});
    }
  std::sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) { return a.begin < b.begin; });
  segment.shards.clear();
  for (const Shard& shard : shards)
    if (!segment.shards.empty() && segment.shards.back().end == shard.begin &&
        segment.shards.back().value == shard.value)
      segment.shards.back().end = shard.end;
    else
      segment.shards.push_back(shard);
}

void Contents::check_output(const NamedOutput& output) {
  const Operand& o = output.operand;
  for_each_touched(o, o.type.bytes(), [&](std::size_t begin, Segment& segment) {
    if (segment.writer == kNone) fail("output '{}' of micro-batch {} is never written", output.name, output.micro);
    if (const std::string why = fault(segment, begin, o); !why.empty())
      fail("output '{}' of micro-batch {} does not survive: {}", output.name, output.micro, why);
  });
}

void Contents::check_states() const {
  const std::vector<std::int32_t> last = last_values();
  for (const Segments& there : segments_)
    for (const auto& [begin, segment] : there) {
      if (segment.buffer == kNone) continue;
      const auto buffer = static_cast<std::size_t>(segment.buffer);
      const Buffer& state = p_.buffers[buffer];
      if (state.state == kNone || begin >= state.offset + value_bytes_[buffer]) continue;
      if (!segment.shards.empty())
        fail("{} leaves state '{}' with one rank's shard written alone",
             describe(p_, static_cast<std::size_t>(segment.writer)), state.name);
      if (last.empty() || state.state < 0 || segment.value == last[static_cast<std::size_t>(state.state)]) continue;
      if (segment.valued < 0) fail("state '{}' is left as it was before the program, and is to be written", state.name);
      fail("{} leaves in state '{}' what is to be written over there",
           describe(p_, static_cast<std::size_t>(segment.valued)), state.name);
    }
}

std::vector<std::int32_t> Contents::last_values() const {
  std::vector<std::int32_t> last(p_.values.empty() ? 0 : p_.states, kNone);
  for (std::size_t v = 0; v < p_.values.size(); ++v)
    if (p_.values[v] >= 0) last[static_cast<std::size_t>(p_.values[v])] = static_cast<std::int32_t>(v);
  return last;
}

std::vector<std::size_t> Contents::value_bytes() const {
  std::vector<std::size_t> bytes(p_.buffers.size(), 0);
  for (const Instruction& instruction : p_.instructions)
    for (const auto* operands : {&instruction.inputs, &instruction.outputs})
      for (const Operand& o : *operands)
        if (o.buffer != kNone && !sharded(o.place)) {
          std::size_t& end = bytes[static_cast<std::size_t>(o.buffer)];
          end = std::max(end, o.offset + o.type.bytes());
        }
  for (std::size_t b = 0; b < bytes.size(); ++b)
    if (bytes[b] == 0) bytes[b] = p_.buffers[b].bytes;
  return bytes;
}

}  // namespace trireme::program
