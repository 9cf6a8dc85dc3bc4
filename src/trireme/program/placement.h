#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace trireme::program {

// Gives buffers offsets one after another: each goes to the lowest offset at which it overlaps with none that has one
// and is alive at the same time.
//
// Time is divided into windows, each with about as many buffers that begin in it. A buffer is compared one by one with
// those that begin or end in the windows where it begins and ends; of the others it sees what they have in use at any
// time. So where lives are short against the whole program, the work for a buffer hardly depends on their number.
class Placement {
 public:
  struct Life {
    std::int32_t first;  // instructions
    std::int32_t last;
    std::size_t size;  // a multiple of its alignment
    std::size_t alignment;
  };
  // `lives` must outlive it.
  explicit Placement(const std::vector<Life>& lives, std::size_t per_window = 512);

  // Places the buffers of `order`, indices of lives, after forgetting all others, and returns the end of the highest.
  // Nothing: one of them would end beyond `limit`.
  std::optional<std::size_t> run(const std::vector<std::size_t>& order,
                                 std::size_t limit = std::numeric_limits<std::size_t>::max());

  const std::vector<std::size_t>& offsets() const { return offsets_; }

 private:
  // Disjoint ranges of bytes in order. Those that touch become one.
  class Ranges {
   public:
    void add(std::size_t begin, std::size_t end);
    // The lowest aligned offset, from `offset` on, with `size` free bytes.
    std::size_t lowest(std::size_t offset, std::size_t size, std::size_t alignment) const;

   private:
    struct Range {
      std::size_t begin;
      std::size_t end;
    };
    std::vector<Range> ranges_;
  };

  // Buffers by offset, with their lives, which are looked at in blocks: arrays end with a block that is never alive.
  class Buffers {
   public:
    Buffers();
    void add(const Life& life, std::size_t offset);
    // As in Ranges, among those alive together with `life`. `next` is the first that has not been looked at: 0, then as
    // it was left by a call for the same life and a lower offset.
    std::size_t lowest(std::size_t offset, const Life& life, std::size_t& next) const;

   private:
    static constexpr std::size_t kBlock = 16;
    std::size_t count_ = 0;
    std::vector<std::int32_t> first_, last_;
    std::vector<std::size_t> begin_, end_;
  };

  struct Window {
    std::int32_t first = 0;  // instructions
    std::int32_t last = 0;
    Buffers partly;     // those that begin or end in it
    Ranges throughout;  // what is in use by buffers that are alive in all of it
    Ranges ever;        // what is in use at any time in it
  };

  std::size_t lowest(const Life& life) const;
  void add(const Life& life, std::size_t offset);

  const std::vector<Life>& lives_;
  std::vector<Window> windows_;          // in order
  std::vector<std::int32_t> window_at_;  // by instruction
  std::vector<std::size_t> offsets_;
};

}  // namespace trireme::program
