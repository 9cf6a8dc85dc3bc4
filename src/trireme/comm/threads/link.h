#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace trireme::comm::threads {

// A network link that the threads transport pretends to: "1GB/s,20us" (bandwidth, then latency; either may stand
// alone). A sender's messages leave one after the other at the bandwidth; each arrives `latency` after it has left.
// Nothing is delivered early and nobody burns a core waiting.
struct Link {
  double bytes_per_second = 0;  // 0: as fast as memory
  std::chrono::nanoseconds latency{0};

  std::chrono::nanoseconds transfer(std::size_t bytes) const {
    if (bytes_per_second <= 0) return std::chrono::nanoseconds(0);
    return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) / bytes_per_second));
  }
};

// Nothing for "". Refuses what it does not understand.
std::optional<Link> parse_link(std::string_view text);

}  // namespace trireme::comm::threads
