#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/comm/types.h"
#include "trireme/core/dtype.h"

namespace trireme::comm {

// What a transport must give; Communicator builds everything else on it. See docs/adding_a_transport.md.

// Traffic that must not meet: each channel is a message space of its own, used by one thread at a time per rank.
enum class Channel : std::uint8_t { foreground, background, user };
inline constexpr int kChannels = 3;

// What a rank is doing, for the message when it waits too long or fails.
struct Call {
  Collective collective = Collective::message;
  Algorithm algorithm = Algorithm::automatic;  // automatic: the collective has only one
  int step = 0;                                // from 1; 0: not known
  std::array<char, 64> name = {};              // cut to fit

  void set_name(std::string_view text);
  std::string describe() const;  // `all_reduce "grads.3" (ring, step 2)`
};

enum class TransportKind : std::uint8_t { threads, emulated, mpi };
const char* name_of(TransportKind kind);

class Transport;

// One side of one message under way. Its destructor takes the buffer back if the message is not done.
class Ticket {
 public:
  Ticket() = default;
  Ticket(Transport* transport, Channel channel, int peer, void* handle)
      : transport_(transport), handle_(handle), peer_(peer), channel_(channel) {}
  Ticket(Ticket&& other) noexcept;
  Ticket& operator=(Ticket&& other) noexcept;
  ~Ticket();

  explicit operator bool() const { return transport_ != nullptr; }
  void* handle() const { return handle_; }  // the transport's own
  int peer() const { return peer_; }
  Channel channel() const { return channel_; }
  void clear() { transport_ = nullptr; }  // for transports: the message is done

 private:
  Transport* transport_ = nullptr;
  void* handle_ = nullptr;
  int peer_ = -1;
  Channel channel_ = Channel::foreground;
};

// What happens to a message's bytes when they arrive.
struct Combine {
  DType dtype;
  Reduce reduce;
};

// One rank's end of a group. Messages between two ranks with equal tags in one channel arrive in the order they were
// sent. Every wait honours the group's timeout and abort(), and throws.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual TransportKind kind() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective. Ranks of equal color form a group, ordered by key, then by rank; a negative color gives none.
  virtual std::unique_ptr<Transport> split(int color, int key) = 0;

  virtual Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) = 0;
  // With `combine`, and only where combines() holds, the bytes are combined into what is there.
  virtual Ticket recv(Channel channel, std::span<std::byte> bytes, int from, int tag, const Combine* combine) = 0;
  virtual bool combines() const { return false; }
  virtual bool test(Ticket& ticket, const Call& call) = 0;
  virtual void wait(Ticket& ticket, const Call& call) = 0;
  // The buffer is the caller's again. Called from destructors: must not throw.
  virtual void cancel(Ticket& ticket) noexcept = 0;

  // The transport's own collectives; where a function says false, messages do it. They count what they move.
  virtual bool barrier(Channel, const Call&, Counters&) { return false; }
  virtual bool all_reduce(Channel, std::span<const Segment>, DType, Reduce, const Call&, Counters&) { return false; }
  virtual bool reduce_scatter(Channel, std::span<const Cut>, DType, Reduce, std::span<std::byte> /*scratch*/,
                              const Call&, Counters&) {
    return false;
  }
  virtual bool all_gather(Channel, std::span<const Cut>, DType, std::span<std::byte> /*scratch*/, const Call&,
                          Counters&) {
    return false;
  }

  // Every rank of the world this group came from learns of it; the first reason stays.
  virtual void abort(const std::string& why) = 0;
  // Throws if that has happened.
  virtual void check() const = 0;
};

}  // namespace trireme::comm
