#include "trireme/core/rng.h"

#include <cmath>
#include <numbers>

namespace trireme {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  constexpr std::uint64_t kMul0 = 0xD2511F53;
  constexpr std::uint64_t kMul1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = kMul0 * c[0];
    const std::uint64_t p1 = kMul1 * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

std::uint64_t site_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return SplitMix(hash).next();
}

std::array<std::uint32_t, 4> RandomStream::words(std::uint64_t row, std::uint64_t quad) const {
  // The 64-bit key carries seed, site and step; row and element fill the 128-bit counter, so no two draws of one key
  // can meet.
  const std::uint64_t key = SplitMix(SplitMix(seed ^ 0x5851f42d4c957f2dULL).next() ^ site ^ (step * 0x9E3779B97F4A7C15ULL)).next();
  return philox({static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(quad >> 32),
                 static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row >> 32)},
                {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
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
