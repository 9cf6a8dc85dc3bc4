#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

// Counter-based randomness (Philox 4x32, ten rounds): a pure function of key and counter. The same numbers come out
// however a tensor is cut, split into micro-batches or recomputed, because nothing is drawn in sequence.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A stable number for a name ("blocks.0.attn.dropout"): the `site` of a random draw.
std::uint64_t site_of(std::string_view name);

// One draw is identified by (seed, site, step, row in the global batch, element within the row). The words are mixed
// into Philox's key and counter; each call gives the four numbers of elements 4·quad … 4·quad+3.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t site = 0;
  std::uint64_t step = 0;

  std::array<std::uint32_t, 4> words(std::uint64_t row, std::uint64_t quad) const;
  // The numbers of out.size()/4 quads from `first_quad` on, one after another: faster than asking for each.
  void fill(std::uint64_t row, std::uint64_t first_quad, std::span<std::uint32_t> out) const;

 private:
  std::array<std::uint32_t, 2> key() const;
};

// In [0, 1), 24 bits.
inline float to_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

// Two independent standard normal numbers from two words.
std::array<float, 2> to_normal(std::uint32_t a, std::uint32_t b);

// A plain generator for host-side choices (sampling text, shuffling); not used for anything a rank layout could change.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace trireme
