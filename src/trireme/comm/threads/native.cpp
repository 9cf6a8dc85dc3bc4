#include <cstring>

#include "trireme/comm/arithmetic.h"
#include "trireme/comm/cuts.h"
#include "trireme/comm/threads/transport.h"

// The threads transport's own collectives: ranks read and write each other's memory.
//
// Small ones take one round: a rank copies its data where all can see it, says so, waits for the others and computes
// the whole result alone. Large ones take two: all say where their memory is; when all have come, each rank works on
// its own part of everybody's memory; when all have finished, they go.
namespace trireme::comm::threads {
namespace {

constexpr std::uint64_t kPoisoned = ~std::uint64_t{0};

}  // namespace

const Entry& ThreadsTransport::entry(Channel channel, int rank) const {
  const ChannelState& state = group_->channel(channel);
  const std::uint64_t sequence = state.ends[static_cast<std::size_t>(rank_)].sequence;
  return state.slots[static_cast<std::size_t>(rank)].entries[sequence % 2];
}

template <class T>
const T* ThreadsTransport::list(Channel channel, int rank) const {
  return static_cast<const T*>(entry(channel, rank).list);
}

std::byte* ThreadsTransport::small(Channel channel, int rank) {
  ChannelState& state = group_->channel(channel);
  return state.small.data() + (static_cast<std::size_t>(rank) * 2 + end(channel).sequence % 2) * kSmall;
}

Entry& ThreadsTransport::come(Channel channel, const Entry& entry) {
  ++end(channel).sequence;
  Entry& mine = group_->channel(channel).slots[static_cast<std::size_t>(rank_)].entries[end(channel).sequence % 2];
  mine = entry;
  return mine;
}

void ThreadsTransport::publish(Channel channel) {
  ChannelState& state = group_->channel(channel);
  state.slots[static_cast<std::size_t>(rank_)].sequence.store(end(channel).sequence);
  for (int r = 0; r < size(); ++r)
    if (r != rank_) state.ends[static_cast<std::size_t>(r)].bell.ring();
}

void ThreadsTransport::await_all(Channel channel, const Call& call) {
  ChannelState& state = group_->channel(channel);
  const std::uint64_t sequence = end(channel).sequence;
  const auto has_come = [&](int rank) {
    return state.slots[static_cast<std::size_t>(rank)].sequence.load() >= sequence;
  };
  int next = 0;  // all before it have come
  await(
      channel, call,
      [&] {
        while (next < size() && has_come(next)) ++next;
        return next == size();
      },
      [&](auto&& f) {
        for (int r = 0; r < size(); ++r)
          if (!has_come(r)) f(r);
      });
}

bool ThreadsTransport::agree(Channel channel) const {
  for (int r = 1; r < group_->size(); ++r)
    if (!entry(channel, r).agrees(entry(channel, 0))) return false;
  return true;
}

void ThreadsTransport::disagree(Channel channel, const Call& call) {
  int other = 0;
  while (entry(channel, other).agrees(entry(channel, rank_)) && other + 1 < size()) ++other;
  const auto say = [&](int rank) {
    const Entry& e = entry(channel, rank);
    return fmt::format("{} calls {} of {} bytes of {}{}", name_of_rank(rank), comm::name_of(e.kind), e.bytes,
                       trireme::name_of(e.dtype), e.items == 1 ? "" : fmt::format(" in {} pieces", e.items));
  };
  const std::string why = fmt::format("{}: {}, {}: ranks must call the same collectives in the same order",
                                      call.describe(), say(rank_), say(other));
  group_->world().abort(why);
  group_->world().throw_aborted();
}

// Small collectives: all have come and mean the same.
void ThreadsTransport::compare(Channel channel, const Call& call) {
  await_all(channel, call);
  if (!agree(channel)) disagree(channel, call);
}

template <class Work>
void ThreadsTransport::exchange(Channel channel, const Entry& entry, const Call& call, Work&& work) {
  ChannelState& state = group_->channel(channel);
  const auto n = static_cast<std::uint64_t>(size());
  come(channel, entry);
  const std::uint64_t round = ++end(channel).exchanges;
  state.slots[static_cast<std::size_t>(rank_)].sequence.store(end(channel).sequence);
  if (state.arrived.fetch_add(1) + 1 == n * round) {
    std::uint64_t before = round - 1;
    if (state.go.compare_exchange_strong(before, round)) {
      for (int r = 0; r < size(); ++r) state.ends[static_cast<std::size_t>(r)].bell.ring();
    } else {
      group_->world().throw_aborted();
    }
  } else {
    try {
      await(
          channel, call, [&] { return state.go.load() == round; },
          [&](auto&& f) {
            for (int r = 0; r < size(); ++r)
              if (state.slots[static_cast<std::size_t>(r)].sequence.load() < end(channel).sequence) f(r);
          });
    } catch (...) {
      // Leaving is allowed only if nobody can have begun.
      std::uint64_t before = round - 1;
      if (state.go.compare_exchange_strong(before, kPoisoned) || before == kPoisoned) throw;
    }
  }
  const bool same = agree(channel);
  if (same) work();
  if (state.finished.fetch_add(1) + 1 == n * round) {
    for (int r = 0; r < size(); ++r) state.ends[static_cast<std::size_t>(r)].bell.ring();
  } else {
    // The others are at work and wait for nothing: this ends, whatever else has happened.
    const auto ready = [&] { return state.finished.load() >= n * round; };
    if (!end(channel).bell.look(ready, group_->world().patience))
      while (!ready()) end(channel).bell.sleep(ready, Clock::now() + std::chrono::seconds(1));
  }
  if (!same) {
    group_->world().abort(fmt::format("{}: ranks must call the same collectives in the same order, with the same sizes",
                                      call.describe()));
    group_->world().throw_aborted();
  }
}

bool ThreadsTransport::barrier(Channel channel, const Call& call, Counters& counters) {
  if (kind() == TransportKind::emulated) return false;
  come(channel, {.kind = Collective::barrier});
  publish(channel);
  compare(channel, call);
  ++counters.steps;
  return true;
}

bool ThreadsTransport::all_reduce(Channel channel, std::span<const Segment> segments, DType dtype, Reduce reduce,
                                  const Call& call, Counters& counters) {
  if (kind() == TransportKind::emulated) return false;
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = total_bytes(segments, element);
  const auto others = static_cast<std::uint64_t>(size() - 1);
  const Entry mine{Collective::all_reduce, dtype, reduce, bytes, segments.size(), segments.data()};
  std::vector<const void*>& sources = end(channel).sources;
  std::vector<void*>& targets = end(channel).targets;

  if (bytes <= kSmall) {
    come(channel, mine);
    std::byte* to = small(channel, rank_);
    for (const Segment& s : segments) {
      const std::size_t part = static_cast<std::size_t>(s.count) * element;
      if (part > 0) std::memcpy(to, s.data, part);
      to += part;
    }
    publish(channel);
    compare(channel, call);
    std::size_t offset = 0;
    for (const Segment& s : segments) {
      for (int r = 0; r < size(); ++r) sources[static_cast<std::size_t>(r)] = small(channel, r) + offset;
      sources[static_cast<std::size_t>(rank_)] = s.data;  // the copy's cache lines are on their way to the others
      combine_all(sources, std::span(&s.data, 1), s.count, dtype, reduce);
      offset += static_cast<std::size_t>(s.count) * element;
    }
    counters.steps += 1;
    counters.sent += others * bytes;
    counters.received += others * bytes;
    return true;
  }

  // This rank's part of the bucket, in elements: whole cache lines, so that no two ranks write to the same one.
  const auto line = static_cast<std::int64_t>(64 / element);
  const auto count = static_cast<std::int64_t>(bytes / element);
  const std::int64_t lines = (count + line - 1) / line;
  const std::int64_t begin = std::min(count, lines * rank_ / size() * line);
  const std::int64_t finish = std::min(count, lines * (rank_ + 1) / size() * line);
  exchange(channel, mine, call, [&] {
    std::int64_t first = 0;  // of the segment, in the bucket
    for (std::size_t i = 0; i < segments.size(); first += segments[i++].count) {
      const std::int64_t from = std::max(begin, first);
      const std::int64_t to = std::min(finish, first + segments[i].count);
      if (from >= to) continue;
      for (int r = 0; r < size(); ++r) {
        auto* const data = static_cast<std::byte*>(list<Segment>(channel, r)[i].data);
        targets[static_cast<std::size_t>(r)] = data + static_cast<std::size_t>(from - first) * element;
        sources[static_cast<std::size_t>(r)] = targets[static_cast<std::size_t>(r)];
      }
      combine_all(sources, targets, to - from, dtype, reduce);
    }
  });
  const std::uint64_t part = static_cast<std::uint64_t>(finish - begin) * element;
  counters.steps += 2;
  counters.sent += others * part + (bytes - part);
  counters.received += others * part + (bytes - part);
  return true;
}

bool ThreadsTransport::reduce_scatter(Channel channel, std::span<const Cut> cuts, DType dtype, Reduce reduce,
                                      std::span<std::byte>, const Call& call, Counters& counters) {
  if (kind() == TransportKind::emulated) return false;
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = total_bytes(cuts, element);
  std::vector<const void*>& sources = end(channel).sources;
  exchange(channel, {Collective::reduce_scatter, dtype, reduce, bytes, cuts.size(), cuts.data()}, call, [&] {
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const auto offset = static_cast<std::size_t>(slice_begin(cuts[i], rank_)) * element;
      for (int r = 0; r < size(); ++r)
        sources[static_cast<std::size_t>(r)] = static_cast<const std::byte*>(list<Cut>(channel, r)[i].whole) + offset;
      combine_all(sources, std::span(&cuts[i].slice, 1), slice_extent(cuts[i], rank_), dtype, reduce);
    }
  });
  pad_slices(cuts, rank_, element);
  const std::size_t mine = bytes_of(cuts, rank_, element);
  counters.steps += 1;
  counters.sent += bytes - mine;
  counters.received += static_cast<std::uint64_t>(size() - 1) * mine;
  return true;
}

bool ThreadsTransport::all_gather(Channel channel, std::span<const Cut> cuts, DType dtype, std::span<std::byte>,
                                  const Call& call, Counters& counters) {
  if (kind() == TransportKind::emulated) return false;
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = total_bytes(cuts, element);
  exchange(channel, {Collective::all_gather, dtype, Reduce::sum, bytes, cuts.size(), cuts.data()}, call, [&] {
    for (std::size_t i = 0; i < cuts.size(); ++i)
      for (int k = 1; k < size(); ++k) {
        const int r = (rank_ + k) % size();  // not all from the same rank at once
        const std::int64_t extent = slice_extent(cuts[i], r);
        if (extent > 0)
          std::memcpy(
              static_cast<std::byte*>(cuts[i].whole) + static_cast<std::size_t>(slice_begin(cuts[i], r)) * element,
              list<Cut>(channel, r)[i].slice, static_cast<std::size_t>(extent) * element);
      }
    place_slices(cuts, rank_, element);
  });
  const std::size_t mine = bytes_of(cuts, rank_, element);
  counters.steps += 1;
  counters.sent += static_cast<std::uint64_t>(size() - 1) * mine;
  counters.received += bytes - mine;
  return true;
}

// Not a collective of data, so it takes no time on an emulated link either.
std::unique_ptr<Transport> ThreadsTransport::split(int color, int key) {
  struct Wish {
    int color;
    int key;
    std::shared_ptr<Group> group;  // the first member's, for all
  };
  check();
  constexpr Channel kChannel = Channel::foreground;
  const Call call{.collective = Collective::split};
  Wish wish{color, key, nullptr};
  const Entry mine{.kind = Collective::split, .list = &wish};
  std::vector<int> members;
  exchange(kChannel, mine, call, [&] {
    for (int r = 0; r < size(); ++r)
      if (color >= 0 && list<Wish>(kChannel, r)->color == color) members.push_back(r);
    std::stable_sort(members.begin(), members.end(),
                     [&](int a, int b) { return list<Wish>(kChannel, a)->key < list<Wish>(kChannel, b)->key; });
  });
  if (!members.empty() && members.front() == rank_) {
    std::vector<int> world_ranks;
    world_ranks.reserve(members.size());
    for (const int r : members) world_ranks.push_back(group_->world_rank(r));
    wish.group = std::make_shared<Group>(group_->shared_world(), std::move(world_ranks));
  }
  std::shared_ptr<Group> group;
  exchange(kChannel, mine, call, [&] {
    if (!members.empty()) group = list<Wish>(kChannel, members.front())->group;
  });
  if (!group) return nullptr;
  const auto place = std::find(members.begin(), members.end(), rank_);
  return std::make_unique<ThreadsTransport>(std::move(group), static_cast<int>(place - members.begin()));
}

}  // namespace trireme::comm::threads
