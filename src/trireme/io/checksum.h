#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme::io {

// XXH3 (64 bits): finds damage, at the speed of memory; no defence against forgery.
std::uint64_t checksum(std::span<const std::byte> bytes);
inline std::uint64_t checksum(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

// The checksum of bytes that come piece by piece.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  // Of all that was added since the last call.
  std::uint64_t take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sixteen lower-case hexadecimal digits, and back; nothing for any other text.
std::string checksum_text(std::uint64_t checksum);
std::optional<std::uint64_t> parse_checksum(std::string_view text);

}  // namespace trireme::io
