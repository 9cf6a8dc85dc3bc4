#include "trireme/comm/threads/state.h"

#include <algorithm>

#include "trireme/comm/counted_wait.h"
#include "trireme/core/text.h"

namespace trireme::comm::threads {

WorldState::WorldState(int how_many, std::optional<Link> emulated, double seconds)
    : ranks(how_many),
      link(emulated),
      timeout(timeout_of<Clock::duration>(seconds)),
      patience(emulated ? Patience{} : threads::patience(how_many)),  // a link's delays are for sleeping
      waiting_(static_cast<std::size_t>(how_many)),
      ports_(static_cast<std::size_t>(how_many)) {}

bool WorldState::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (aborted_.load()) return false;
  reason_ = why;
  aborted_.store(true);
  for (Group* group : groups_) group->ring_all();
  return true;
}

void WorldState::throw_aborted() const {
  const std::lock_guard lock(mutex_);
  throw Aborted(reason_);
}

void WorldState::add(Group& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(&group);
}
void WorldState::remove(Group& group) {
  const std::lock_guard lock(mutex_);
  std::erase(groups_, &group);
}

void WorldState::set_waiting(int rank, Channel channel, const Waiting& waiting) {
  const std::lock_guard lock(waiting_mutex_);
  waiting_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(channel)] = waiting;
}

namespace {

std::string rank_list(const WorldState::Waiting& w) {
  const int shown = std::min(w.count, static_cast<int>(w.ranks.size()));
  std::string text = w.count == 1 ? "rank " : "ranks ";
  for (int i = 0; i < shown; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", w.ranks[static_cast<std::size_t>(i)]);
  if (w.count > shown) text += fmt::format(" and {} more", w.count - shown);
  return text;
}

}  // namespace

std::string WorldState::who_waits(int rank, Channel channel, const Waiting& mine) const {
  const std::chrono::duration<double> waited = Clock::now() - mine.since;
  std::string text = fmt::format("rank {} waited {} for {} in {}", rank, format_duration(waited.count()),
                                 rank_list(mine), mine.call.describe());
  const std::lock_guard lock(waiting_mutex_);
  for (int r = 0; r < ranks; ++r) {
    bool waits = false;
    for (int l = 0; l < kChannels; ++l) {
      if (r == rank && l == static_cast<int>(channel)) continue;
      const Waiting& w = waiting_[static_cast<std::size_t>(r)][static_cast<std::size_t>(l)];
      if (!w.active) continue;
      text += fmt::format("; rank {} waits for {} in {}", r, rank_list(w), w.call.describe());
      waits = true;
    }
    if (!waits && r != rank) text += fmt::format("; rank {} waits for nobody", r);
  }
  return text;
}

WorldState::Flight WorldState::occupy(int rank, std::size_t bytes) {
  Port& port = ports_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(port.mutex);
  const Clock::time_point left = std::max(port.free, Clock::now()) + link->transfer(bytes);
  port.free = left;
  return {left, left + link->latency};
}

void PostQueue::push(Post* post) {
  post->next = nullptr;
  (last_ != nullptr ? last_->next : first_) = post;
  last_ = post;
}

Post* PostQueue::take(int tag) {
  Post* before = nullptr;
  for (Post* p = first_; p != nullptr; before = p, p = p->next) {
    if (p->tag != tag) continue;
    (before != nullptr ? before->next : first_) = p->next;
    if (last_ == p) last_ = before;
    return p;
  }
  return nullptr;
}

bool PostQueue::remove(Post* post) {
  Post* before = nullptr;
  for (Post* p = first_; p != nullptr; before = p, p = p->next) {
    if (p != post) continue;
    (before != nullptr ? before->next : first_) = p->next;
    if (last_ == p) last_ = before;
    return true;
  }
  return false;
}

Post* Endpoint::take() {
  while (!detached.empty() && detached.front()->done.load() != 0) {
    idle.push_back(detached.front());
    detached.pop_front();
  }
  if (idle.empty()) {
    posts.emplace_back();
    idle.push_back(&posts.back());
  }
  Post* const post = idle.back();
  idle.pop_back();
  post->sending = post->combining = post->detached = post->matched = post->mismatched = false;
  post->when = {};
  post->done.store(0, std::memory_order_relaxed);
  post->bell = &bell;
  return post;
}

ChannelState::ChannelState(int ranks)
    : boxes(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
      ends(static_cast<std::size_t>(ranks)),
      slots(static_cast<std::size_t>(ranks)),
      small(static_cast<std::size_t>(ranks) * 2 * kSmall) {
  for (Endpoint& end : ends) {
    end.sources.resize(static_cast<std::size_t>(ranks));
    end.targets.resize(static_cast<std::size_t>(ranks));
  }
}

Group::Group(std::shared_ptr<WorldState> world, std::vector<int> members)
    : world_(std::move(world)),
      members_(std::move(members)),
      channels_{ChannelState(size()), ChannelState(size()), ChannelState(size())} {
  world_->add(*this);
}
Group::~Group() { world_->remove(*this); }

void Group::ring_all() {
  for (ChannelState& channel : channels_)
    for (Endpoint& end : channel.ends) end.bell.ring();
}

}  // namespace trireme::comm::threads
