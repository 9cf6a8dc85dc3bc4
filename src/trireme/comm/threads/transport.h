#pragma once
#include <algorithm>
#include <memory>

#include "trireme/comm/counted_wait.h"
#include "trireme/comm/threads/state.h"
#include "trireme/comm/transport.h"

namespace trireme::comm::threads {

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  TransportKind kind() const override {
    return group_->world().link ? TransportKind::emulated : TransportKind::threads;
  }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::unique_ptr<Transport> split(int color, int key) override;

  Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) override;
  Ticket recv(Channel channel, std::span<std::byte> bytes, int from, int tag, const Combine* combine) override;
  bool combines() const override { return true; }
  bool test(Ticket& ticket, const Call& call) override;
  void wait(Ticket& ticket, const Call& call) override;
  void cancel(Ticket& ticket) noexcept override;

  bool barrier(Channel channel, const Call& call, Counters& counters) override;
  bool all_reduce(Channel channel, std::span<const Segment> segments, DType dtype, Reduce reduce, const Call& call,
                  Counters& counters) override;
  bool reduce_scatter(Channel channel, std::span<const Cut> cuts, DType dtype, Reduce reduce,
                      std::span<std::byte> scratch, const Call& call, Counters& counters) override;
  bool all_gather(Channel channel, std::span<const Cut> cuts, DType dtype, std::span<std::byte> scratch,
                  const Call& call, Counters& counters) override;

  void abort(const std::string& why) override;
  void check() const override {
    if (group_->world().aborted()) group_->world().throw_aborted();
  }

 private:
  Endpoint& end(Channel channel) { return group_->channel(channel).ends[static_cast<std::size_t>(rank_)]; }
  std::string name_of_rank(int rank) const { return "rank " + std::to_string(group_->world_rank(rank)); }

  // Returns once ready() holds. Throws when the world is aborted or the timeout passes; missing(f) calls f with the
  // ranks that are waited for.
  template <class Ready, class Missing>
  void await(Channel channel, const Call& call, Ready&& ready, Missing&& missing);
  void await_message(Ticket& ticket, const Call& call);
  // Until an emulated link has delivered what is here already.
  void await_link(const Post& post, const Ticket& ticket, const Call& call);
  void deliver(Post* send, Post* receive, int from, int to);

  // Native collectives (native.cpp).
  Entry& come(Channel channel, const Entry& entry);
  void publish(Channel channel);
  void await_all(Channel channel, const Call& call);
  void compare(Channel channel, const Call& call);
  bool agree(Channel channel) const;
  [[noreturn]] void disagree(Channel channel, const Call& call);
  template <class Work>
  void exchange(Channel channel, const Entry& entry, const Call& call, Work&& work);
  std::byte* small(Channel channel, int rank);
  template <class T>
  const T* list(Channel channel, int rank) const;
  const Entry& entry(Channel channel, int rank) const;

  std::shared_ptr<Group> group_;
  int rank_;
};

template <class Ready, class Missing>
void ThreadsTransport::await(Channel channel, const Call& call, Ready&& ready, Missing&& missing) {
  WorldState& world = group_->world();
  if (end(channel).bell.look([&] { return ready() || world.aborted(); }, world.patience)) {
    if (ready()) return;
    world.throw_aborted();
  }
  WorldState::Waiting waiting{.active = true, .call = call, .since = Clock::now()};
  // Other ranks see only waits that last: most end within the first sleep.
  Clock::duration slice = std::min<Clock::duration>(world.timeout / 4, std::chrono::milliseconds(50));
  Clock::time_point begin = waiting.since;
  Clock::duration waited{};
  bool shown = false;
  const auto hide = [&] {
    if (shown) world.set_waiting(group_->world_rank(rank_), channel, {});
  };
  for (;;) {
    end(channel).bell.sleep([&] { return ready() || world.aborted(); }, begin + slice);
    if (ready()) return hide();
    if (world.aborted()) {
      hide();
      world.throw_aborted();
    }
    const Clock::time_point now = Clock::now();
    if (now < begin + slice) continue;
    waited += counted_wait(now - begin, slice);
    waiting.count = 0;
    missing([&](int rank) {
      if (waiting.count < static_cast<int>(waiting.ranks.size()))
        waiting.ranks[static_cast<std::size_t>(waiting.count)] = group_->world_rank(rank);
      ++waiting.count;
    });
    if (waited >= world.timeout) {
      const std::string why = world.who_waits(group_->world_rank(rank_), channel, waiting);
      hide();
      if (world.abort(why)) fail("{}", why);
      world.throw_aborted();
    }
    world.set_waiting(group_->world_rank(rank_), channel, waiting);
    shown = true;
    begin = now;
    slice = std::min<Clock::duration>(world.timeout / 4, std::chrono::seconds(1));
  }
}

}  // namespace trireme::comm::threads
