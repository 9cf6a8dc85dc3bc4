#include <sys/prctl.h>

#include <cstring>
#include <thread>

#include "trireme/comm/arithmetic.h"
#include "trireme/comm/threads/transport.h"
#include "trireme/core/text.h"

namespace trireme::comm::threads {
namespace {

// Up to this size a sender does not wait for the receiver: the bytes are kept with the post.
constexpr std::size_t kKept = 1024;

Post* post_of(const Ticket& ticket) { return static_cast<Post*>(ticket.handle()); }

// Linux ends a sleep up to 50 µs late so as to wake up less often; a link's latency is shorter than that.
void sleep_precisely() {
  thread_local const int done = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  static_cast<void>(done);
}

// After this the post's owner may use it again.
void complete(Post* post) {
  Doorbell* const bell = post->bell;
  post->done.store(1);
  bell->ring();
}

}  // namespace

void ThreadsTransport::deliver(Post* send, Post* receive, int from, int to) {
  if (group_->world().link) receive->when = send->when + group_->world().link->latency;
  if (send->bytes.size() != receive->bytes.size()) {
    // Both sides learn of it, and nobody is left waiting.
    const std::string why =
        fmt::format("{} sent {} bytes to {}, which expected {}: the ranks do not call the same thing",
                    name_of_rank(from), send->bytes.size(), name_of_rank(to), receive->bytes.size());
    send->mismatched = receive->mismatched = true;
    group_->world().abort(why);
  } else if (receive->combining) {
    combine(receive->bytes.data(), send->bytes.data(),
            static_cast<std::int64_t>(send->bytes.size() / size_of(receive->combine.dtype)), receive->combine.dtype,
            receive->combine.reduce);
  } else if (!send->bytes.empty()) {
    std::memcpy(receive->bytes.data(), send->bytes.data(), send->bytes.size());
  }
  complete(receive);
  complete(send);
}

Ticket ThreadsTransport::send(Channel channel, std::span<const std::byte> bytes, int to, int tag) {
  check();
  Post* const post = end(channel).take();
  // Nobody writes through it.
  post->bytes = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  post->tag = tag;
  post->sending = true;
  const bool linked = group_->world().link.has_value();
  if (linked) post->when = group_->world().occupy(group_->world_rank(rank_), bytes.size()).left;
  Mailbox& box = group_->box(channel, rank_, to);
  post->box = &box;
  std::unique_lock lock(box.mutex);
  if (Post* const receive = box.receives.take(tag)) {
    receive->matched = post->matched = true;
    lock.unlock();
    deliver(post, receive, rank_, to);
    return {this, channel, to, post};
  }
  if (bytes.size() <= kKept && !linked) {
    if (!post->kept) post->kept = std::make_unique_for_overwrite<std::byte[]>(kKept);
    if (!bytes.empty()) std::memcpy(post->kept.get(), bytes.data(), bytes.size());
    post->bytes = {post->kept.get(), bytes.size()};
    post->detached = true;
    box.sends.push(post);
    end(channel).detached.push_back(post);
    return {};
  }
  box.sends.push(post);
  return {this, channel, to, post};
}

Ticket ThreadsTransport::recv(Channel channel, std::span<std::byte> bytes, int from, int tag, const Combine* combine) {
  check();
  Post* const post = end(channel).take();
  post->bytes = bytes;
  post->tag = tag;
  if (combine != nullptr) {
    post->combining = true;
    post->combine = *combine;
  }
  Mailbox& box = group_->box(channel, from, rank_);
  post->box = &box;
  std::unique_lock lock(box.mutex);
  if (Post* const send = box.sends.take(tag)) {
    send->matched = post->matched = true;
    lock.unlock();
    deliver(send, post, from, rank_);
  } else {
    box.receives.push(post);
  }
  return {this, channel, from, post};
}

bool ThreadsTransport::test(Ticket& ticket, const Call&) {
  Post* const post = post_of(ticket);
  if (post->done.load() == 0) {
    check();
    return false;
  }
  if (post->when != Clock::time_point{} && post->when > Clock::now()) return false;
  const bool mismatched = post->mismatched;
  end(ticket.channel()).give(post);
  ticket.clear();
  if (mismatched) group_->world().throw_aborted();
  return true;
}

void ThreadsTransport::wait(Ticket& ticket, const Call& call) {
  await_message(ticket, call);
  Post* const post = post_of(ticket);
  WorldState& world = group_->world();
  // On an emulated link the bytes are here, but nobody may know yet.
  if (post->when != Clock::time_point{}) await_link(*post, ticket, call);
  const bool mismatched = post->mismatched;
  end(ticket.channel()).give(post);
  ticket.clear();
  if (mismatched) world.throw_aborted();
}

void ThreadsTransport::await_link(const Post& post, const Ticket& ticket, const Call& call) {
  WorldState& world = group_->world();
  sleep_precisely();
  WorldState::Waiting waiting{.active = true, .call = call, .count = 1, .since = Clock::now()};
  waiting.ranks.front() = group_->world_rank(ticket.peer());
  const Clock::duration slice = std::min<Clock::duration>(world.timeout / 4, std::chrono::seconds(1));
  Clock::duration waited{};
  for (Clock::time_point begin = waiting.since; post.when > begin;) {
    end(ticket.channel()).bell.sleep([&] { return world.aborted(); }, std::min(post.when, begin + slice));
    check();
    const Clock::time_point now = Clock::now();
    waited += counted_wait(now - begin, slice);
    begin = now;
    if (post.when <= now || waited < world.timeout) continue;
    const std::string why = fmt::format("{}; the emulated link delivers the message {} later",
                                        world.who_waits(group_->world_rank(rank_), ticket.channel(), waiting),
                                        format_duration(std::chrono::duration<double>(post.when - now).count()));
    if (world.abort(why)) fail("{}", why);
    world.throw_aborted();
  }
}

void ThreadsTransport::await_message(Ticket& ticket, const Call& call) {
  const Post* const post = post_of(ticket);
  await(
      ticket.channel(), call, [&] { return post->done.load() != 0; }, [&](auto&& f) { f(ticket.peer()); });
}

void ThreadsTransport::cancel(Ticket& ticket) noexcept {
  Post* const post = post_of(ticket);
  bool removed = false;
  {
    const std::lock_guard lock(post->box->mutex);
    if (!post->matched) removed = (post->sending ? post->box->sends : post->box->receives).remove(post);
  }
  // Somebody is copying at this moment.
  while (!removed && post->done.load() == 0) std::this_thread::yield();
  end(ticket.channel()).give(post);
  ticket.clear();
}

void ThreadsTransport::abort(const std::string& why) {
  group_->world().abort(fmt::format("{} gave up: {}", name_of_rank(rank_), why));
}

}  // namespace trireme::comm::threads
