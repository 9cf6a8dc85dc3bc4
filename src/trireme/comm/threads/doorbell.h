#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace trireme::comm::threads {

using Clock = std::chrono::steady_clock;

// How long a thread looks before it sleeps. With a core for every rank the others are near: it looks for some
// microseconds, longer than waking somebody takes, or two ranks that meet often would sleep in turns for ever. With
// fewer cores, the thread we wait for may need this very one, so it is offered instead.
struct Patience {
  int spins = 0;
  int yields = 0;
};
Patience patience(int ranks);

// Where one thread sleeps until something that it waits for may have changed.
//
// The rule that makes no wake-up be lost: the thread that makes `ready` true does so with a sequentially consistent
// store and rings afterwards; `ready` looks with sequentially consistent loads. Ringing somebody who is awake is a
// load.
class alignas(64) Doorbell {
 public:
  void ring() {
    if (asleep_.load() != 0) wake();
  }

  // True once ready() holds; looks for as long as `patience` says.
  template <class Ready>
  bool look(Ready&& ready, const Patience& patience) {
    if (ready()) return true;
    for (int i = 0; i < patience.spins; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (ready()) return true;
    }
    if (wary_ > 0) {
      --wary_;
      return false;
    }
    for (int i = 0; i < patience.yields && wary_ == 0; ++i) {
      offer_core();
      if (ready()) return true;
    }
    return false;
  }

  // Sleeps once, unless `ready` holds already; may return early.
  template <class Ready>
  void sleep(Ready&& ready, Clock::time_point until) {
    asleep_.store(1);
    const std::uint32_t seen = word_.load();
    if (!ready()) block(seen, until);
    asleep_.store(0);
  }

 private:
  void offer_core();
  void wake();
  void block(std::uint32_t seen, Clock::time_point until);

  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> asleep_{0};
  // The waiting thread's own: somebody outside this world took an offered core and kept it, so for so many waits none
  // is offered. A sleeper gets its core back much sooner.
  int wary_ = 0;
};

}  // namespace trireme::comm::threads
