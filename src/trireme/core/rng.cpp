#include "trireme/core/rng.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {

namespace {

constexpr int kRounds = 10;
constexpr std::uint64_t kMul0 = 0xD2511F53;
constexpr std::uint64_t kMul1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMul0 * c[0];
    const std::uint64_t p1 = kMul1 * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

std::uint64_t site_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return SplitMix(hash).next();
}

// The 64-bit key carries seed, site and step; row and element fill the 128-bit counter, so no two draws of one key can
// meet.
std::array<std::uint32_t, 2> RandomStream::key() const {
  const std::uint64_t key =
      SplitMix(SplitMix(seed ^ 0x5851f42d4c957f2dULL).next() ^ site ^ (step * 0x9E3779B97F4A7C15ULL)).next();
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

std::array<std::uint32_t, 4> RandomStream::words(std::uint64_t row, std::uint64_t quad) const {
  return philox({static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(quad >> 32),
                 static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row >> 32)},
                key());
}

void RandomStream::fill(std::uint64_t row, std::uint64_t first_quad, std::span<std::uint32_t> out) const {
  // Philox on several counters at once, each word of the state in an array of its own: the compiler makes vectors of
  // it.
  constexpr std::size_t kTogether = 16;
  const std::array<std::uint32_t, 2> start = key();
  const std::size_t quads = out.size() / 4;
  for (std::size_t done = 0; done < quads; done += kTogether) {
    std::array<std::uint32_t, kTogether> c0, c1, c2, c3;
    for (std::size_t i = 0; i < kTogether; ++i) {
      const std::uint64_t quad = first_quad + done + i;
      c0[i] = static_cast<std::uint32_t>(quad);
      c1[i] = static_cast<std::uint32_t>(quad >> 32);
      c2[i] = static_cast<std::uint32_t>(row);
      c3[i] = static_cast<std::uint32_t>(row >> 32);
    }
    std::array<std::uint32_t, 2> k = start;
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < kTogether; ++i) {
        const std::uint64_t p0 = kMul0 * c0[i];
        const std::uint64_t p1 = kMul1 * c2[i];
        c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k[0];
        c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k[1];
        c1[i] = static_cast<std::uint32_t>(p1);
        c3[i] = static_cast<std::uint32_t>(p0);
      }
      k[0] += kWeyl0;
      k[1] += kWeyl1;
    }
    const std::size_t count = std::min(kTogether, quads - done);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t* to = out.data() + (done + i) * 4;
      to[0] = c0[i];
      to[1] = c1[i];
      to[2] = c2[i];
      to[3] = c3[i];
    }
  }
}

std::array<float, 2> to_normal(std::uint32_t a, std::uint32_t b) {
  const float u = (static_cast<float>(a >> 8) + 0.5F) * 0x1p-24F;
  const float radius = std::sqrt(-2.0F * std::log(u));
  const float angle = 2.0F * std::numbers::pi_v<float> * to_unit(b);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

std::uint64_t SplitMix::next() {
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace trireme
