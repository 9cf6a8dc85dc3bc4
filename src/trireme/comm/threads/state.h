#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/threads/doorbell.h"
#include "trireme/comm/threads/link.h"
#include "trireme/comm/transport.h"

namespace trireme::comm::threads {

class Group;

// What all ranks of one world share, whatever groups they are split into.
class WorldState {
 public:
  // A wait that has lasted long enough to be worth telling about.
  struct Waiting {
    bool active = false;
    Call call;
    std::array<int, 8> ranks{};  // waited for: the first few
    int count = 0;
    Clock::time_point since;
  };

  WorldState(int how_many, std::optional<Link> emulated, double seconds);

  const int ranks;
  const std::optional<Link> link;
  const Clock::duration timeout;
  const Patience patience;

  // False if somebody was first.
  bool abort(const std::string& why);
  bool aborted() const { return aborted_.load(); }
  [[noreturn]] void throw_aborted() const;

  void add(Group& group);
  void remove(Group& group);

  void set_waiting(int rank, Channel channel, const Waiting& waiting);
  // "rank 1 waited 0.2 s for rank 0 in …; rank 2 waits for rank 0 in …; rank 0 is in no call"
  std::string who_waits(int rank, Channel channel, const Waiting& mine) const;

  // Sends `bytes` over a rank's outgoing link: when they have left, and when they have arrived.
  struct Flight {
    Clock::time_point left, arrived;
  };
  Flight occupy(int rank, std::size_t bytes);

 private:
  struct alignas(64) Port {
    std::mutex mutex;
    Clock::time_point free;
  };

  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
  std::vector<Group*> groups_;
  mutable std::mutex waiting_mutex_;
  std::vector<std::array<Waiting, kChannels>> waiting_;
  std::vector<Port> ports_;
};

// One side of a message. Its owner takes it from its endpoint and gives it back; once `done` is set nobody else touches
// it.
struct Post {
  std::span<std::byte> bytes;
  int tag = 0;
  bool sending = false;
  bool combining = false;
  bool detached = false;  // a small message: its bytes are kept here and nobody waits for it
  bool matched = false;   // guarded by the mailbox: somebody is delivering it
  bool mismatched = false;
  Combine combine{};
  Clock::time_point when;  // on an emulated link: not complete before
  std::unique_ptr<std::byte[]> kept;
  std::atomic<std::uint32_t> done{0};
  Post* next = nullptr;
  struct Mailbox* box = nullptr;
  Doorbell* bell = nullptr;
};

// A queue of posts that waits for its counterpart.
class PostQueue {
 public:
  void push(Post* post);
  Post* take(int tag);      // the first with this tag, or null
  bool remove(Post* post);  // false if it is not there

 private:
  Post* first_ = nullptr;
  Post* last_ = nullptr;
};

// Messages from one rank to another. The second to arrive, sender or receiver, delivers: so messages move on even while
// the other side does something else.
struct alignas(64) Mailbox {
  std::mutex mutex;
  PostQueue sends;
  PostQueue receives;
};

// One rank's own part of a channel.
struct Endpoint {
  Doorbell bell;
  std::deque<Post> posts;
  std::vector<Post*> idle;
  std::deque<Post*> detached;
  std::uint64_t sequence = 0;  // native collectives so far
  std::uint64_t exchanges = 0;
  std::vector<const void*> sources;
  std::vector<void*> targets;

  Post* take();
  void give(Post* post) { idle.push_back(post); }
};

// What a rank says about the native collective that it has come to.
struct Entry {
  Collective kind = Collective::barrier;
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  std::size_t bytes = 0;
  std::size_t items = 0;
  const void* list = nullptr;  // its own segments or cuts

  bool agrees(const Entry& other) const {
    return kind == other.kind && dtype == other.dtype && reduce == other.reduce && bytes == other.bytes &&
           items == other.items;
  }
};

// Entries are written for every other collective in turn: a rank can be one ahead of a slow reader, but not two.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> sequence{0};  // the last collective that this rank has come to
  std::array<Entry, 2> entries;
};

// Up to this size a rank's data is copied where all can read it, and one round is enough.
inline constexpr std::size_t kSmall = 4096;

struct ChannelState {
  explicit ChannelState(int ranks);

  std::vector<Mailbox> boxes;  // from × ranks + to
  std::vector<Endpoint> ends;
  std::vector<Slot> slots;
  std::vector<std::byte> small;  // (rank, parity) × kSmall
  // Collectives that reach into other ranks' memory: `go` is the number of the last one for which all had come. From
  // then on every rank sees it through, so nobody's memory goes away under another's hands.
  alignas(64) std::atomic<std::uint64_t> arrived{0};
  alignas(64) std::atomic<std::uint64_t> go{0};
  alignas(64) std::atomic<std::uint64_t> finished{0};
};

class Group {
 public:
  Group(std::shared_ptr<WorldState> world, std::vector<int> members);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  WorldState& world() const { return *world_; }
  const std::shared_ptr<WorldState>& shared_world() const { return world_; }
  ChannelState& channel(Channel channel) { return channels_[static_cast<std::size_t>(channel)]; }
  Mailbox& box(Channel which, int from, int to) {
    return channel(which).boxes[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }
  void ring_all();

 private:
  std::shared_ptr<WorldState> world_;
  std::vector<int> members_;
  std::array<ChannelState, kChannels> channels_;
};

}  // namespace trireme::comm::threads
