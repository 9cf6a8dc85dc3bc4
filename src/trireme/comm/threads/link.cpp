#include "trireme/comm/threads/link.h"

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::comm::threads {

std::optional<Link> parse_link(std::string_view text) {
  if (trim(text).empty()) return std::nullopt;
  Link link;
  for (const std::string& part : split(text, ',')) {
    const std::string_view word = trim(part);
    if (word.ends_with("/s")) {
      // "Gbit/s" is how networks are sold; sizes elsewhere are bytes.
      std::string size(word.substr(0, word.size() - 2));
      double factor = 1;
      if (size.ends_with("bit")) {
        size.replace(size.size() - 3, 3, "B");
        factor = 0.125;
      }
      const auto bytes = parse_bytes(size);
      if (!bytes || *bytes == 0)
        refuse("link \"{}\": \"{}\" is no bandwidth; for example 1GB/s or 10Gbit/s", text, word);
      link.bytes_per_second = factor * static_cast<double>(*bytes);
    } else {
      const auto seconds = parse_duration(word);
      if (!seconds)
        refuse("link \"{}\": \"{}\" is neither a bandwidth nor a latency; for example 1GB/s,20us", text, word);
      link.latency = std::chrono::nanoseconds(static_cast<std::int64_t>(*seconds * 1e9));
    }
  }
  return link;
}

}  // namespace trireme::comm::threads
