#include "trireme/io/checksum.h"

// Inlined, so that it is compiled for this instruction set: the packaged library keeps to the oldest.
#define XXH_INLINE_ALL
#ifdef __AVX512F__
#define XXH_VECTOR 2  // AVX2: as fast as memory too, and GCC 12 does not warn about its own AVX-512 header
#endif
#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace trireme::io {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size()); }

std::uint64_t Checksum::take() {
  const std::uint64_t value = XXH3_64bits_digest(&state_->xxh3);
  XXH3_64bits_reset(&state_->xxh3);
  return value;
}

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string checksum_text(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

std::optional<std::uint64_t> parse_checksum(std::string_view text) {
  std::uint64_t value = 0;
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

}  // namespace trireme::io
