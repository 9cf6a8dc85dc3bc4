#pragma once
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/counted_wait.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/comm/transport.h"

namespace trireme::comm::mpi {

using Clock = std::chrono::steady_clock;

// Throws with MPI's own words unless `code` is success.
void check_mpi(int code, const char* what);

// What all groups of a session share.
struct Session::Impl {
  int rank = 0;
  int size = 1;
  Clock::duration timeout{};
  bool blocking_native = false;
  int spins = 0;  // looks before a wait starts to sleep
  bool crowded = false;
  std::shared_ptr<const Tuning> tuning;
  int exceptions = std::uncaught_exceptions();
  // MPI frees communicators collectively; they are kept and freed when the session ends, in the order they were made.
  std::mutex mutex;
  std::vector<MPI_Comm> kept;

  explicit Impl(const SessionOptions& options);
  ~Impl();

  // A copy of `comm` that errors return from.
  MPI_Comm duplicate(MPI_Comm comm);

  // Failure: a rank that gives up sends its reason to all; a rank that waits polls for one.
  bool aborted() const { return aborted_.load(); }
  void abort(const std::string& why);
  void look_for_abort();
  [[noreturn]] void throw_aborted();
  Verdict settle_failure(bool cause, int exit_code);

  // Until `done()` (which looks at MPI once) is true; throws on abort and on timeout, whose message `waiting` gives.
  template <class Done, class Waiting>
  void await(Done&& done, Waiting&& waiting);

 private:
  static constexpr int kReasonBytes = 1024;
  // Until the request is done or a moment has passed; whether it is.
  static bool done_soon(MPI_Request& request);
  void say_goodbye();

  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Comm report_ = MPI_COMM_NULL;  // for settle_failure alone: not all ranks may come to it
  std::int64_t own_turn_ = 0;
  std::int64_t first_turn_ = 0;
  MPI_Request news_ = MPI_REQUEST_NULL;
  std::array<char, kReasonBytes> incoming_{};
  std::array<char, kReasonBytes> outgoing_{};
  std::vector<MPI_Request> aborts_;
  std::string reason_;
  std::atomic<bool> aborted_{false};
};

// Rises from no pause at all to a millisecond: a wait never holds a core for long.
class Backoff {
 public:
  explicit Backoff(int spins, bool crowded) : spins_(spins), crowded_(crowded) {}
  // Returns true when it has slept, so that rarer looks are worth their time.
  bool pause();

 private:
  int spins_;
  bool crowded_;
  int count_ = 0;
  std::chrono::microseconds sleep_{20};
};

template <class Done, class Waiting>
void Session::Impl::await(Done&& done, Waiting&& waiting) {
  if (done()) return;
  const Clock::time_point begin = Clock::now();
  Clock::time_point looked = begin;
  Clock::duration waited{};
  Backoff backoff(spins, crowded);
  for (;;) {
    const bool slept = backoff.pause();
    if (done()) return;
    if (!slept) continue;
    look_for_abort();
    if (aborted()) throw_aborted();
    const Clock::time_point now = Clock::now();
    waited += counted_wait(now - looked, std::min<Clock::duration>(timeout / 4, std::chrono::seconds(1)));
    looked = now;
    if (waited < timeout) continue;
    const std::string why = waiting(std::chrono::duration<double>(Clock::now() - begin).count());
    abort(why);
    fail("{}", why);
  }
}

class MpiTransport final : public Transport {
 public:
  // Takes over `comm`'s ranks; collective over it.
  MpiTransport(std::shared_ptr<Session::Impl> session, MPI_Comm comm);

  TransportKind kind() const override { return TransportKind::mpi; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Transport> split(int color, int key) override;

  Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) override;
  Ticket recv(Channel channel, std::span<std::byte> bytes, int from, int tag, const Combine* combine) override;
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
  void check() const override;

 private:
  // A message under way.
  struct Post {
    MPI_Request request = MPI_REQUEST_NULL;
    std::size_t bytes = 0;
    bool receiving = false;
  };
  struct ChannelState {
    MPI_Comm comm = MPI_COMM_NULL;
    std::deque<Post> posts;
    std::vector<Post*> idle;
    std::vector<int> counts;
    std::vector<int> offsets;
  };

  ChannelState& channel(Channel channel) { return channels_[static_cast<std::size_t>(channel)]; }
  Ticket ticket(Channel channel, int peer, Post* post);
  Post* take(Channel channel);
  bool look(Ticket& ticket, MPI_Status& status);  // true once the message is done
  void finish(Ticket& ticket, const MPI_Status& status);
  // For a collective of MPI's own.
  void await(MPI_Request& request, const Call& call);
  std::string world_rank(int rank) const;

  std::shared_ptr<Session::Impl> session_;
  std::array<ChannelState, kChannels> channels_;
  std::vector<int> world_ranks_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace trireme::comm::mpi
