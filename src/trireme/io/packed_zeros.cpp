#include "trireme/io/packed_zeros.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::io {
namespace {

// Elements that are read at a time: a multiple of 8.
constexpr std::size_t kPackedBlock = std::size_t{16} << 10;
constexpr std::uint32_t kMinusZero = 0x80000000U;
constexpr std::uint32_t kOne = std::bit_cast<std::uint32_t>(1.0F);

bool is_zero(std::uint32_t element) { return (element & ~kMinusZero) == 0; }

bool has_bit(std::span<const std::byte> bits, std::size_t i) {
  return ((bits[i / 8] >> (i % 8)) & std::byte{1}) != std::byte{0};
}

std::size_t count_bits(std::span<const std::byte> bits) {
  std::size_t count = 0;
  for (const std::byte b : bits) count += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(b)));
  return count;
}

// Whether there is a bit behind those of so many elements.
bool bits_behind(std::span<const std::byte> bits, std::size_t elements) {
  return elements % 8 != 0 && (std::to_integer<unsigned>(bits.back()) >> (elements % 8)) != 0;
}

}  // namespace

ZeroPacker::ZeroPacker(std::size_t elements, Read read) : elements_(elements), read_(std::move(read)) {
  for (std::size_t first = 0; first < elements_; first += kPackedBlock)
    for (const std::uint32_t element : load(first)) {
      there_ += is_zero(element) ? 0 : 1;
      signs_ = signs_ || element == kMinusZero;
      ones_ = ones_ && (element == 0 || element == kOne);
    }
  block_ = {};
}

ZeroPacker::ZeroPacker(std::span<const float> values)
    : ZeroPacker(values.size(), [bytes = std::as_bytes(values)](std::size_t offset, std::span<std::byte> out) {
        std::memcpy(out.data(), bytes.data() + offset, out.size());
      }) {}

std::span<const std::uint32_t> ZeroPacker::load(std::size_t first) {
  block_.resize(std::min(kPackedBlock, elements_ - first));
  read_(first * sizeof(float), std::as_writable_bytes(std::span(block_)));
  return block_;
}

void ZeroPacker::make() {
  if (next_ == elements_) {
    part_ = part_ == Part::bits && signs_ ? Part::signs : Part::values;
    next_ = 0;
  }
  const std::span<const std::uint32_t> block = load(next_);
  next_ += block.size();
  taken_ = 0;
  made_.clear();
  if (part_ == Part::values) {
    for (const std::uint32_t element : block)
      if (!is_zero(element)) {
        const auto bytes = std::as_bytes(std::span(&element, 1));
        made_.insert(made_.end(), bytes.begin(), bytes.end());
      }
    return;
  }
  made_.resize((block.size() + 7) / 8);
  for (std::size_t i = 0; i < block.size(); ++i)
    if (part_ == Part::bits ? !is_zero(block[i]) : block[i] == kMinusZero) made_[i / 8] |= std::byte{1} << (i % 8);
}

void ZeroPacker::read(std::size_t offset, std::span<std::byte> out) {
  TRI_CHECK(offset == given_ && offset + out.size() <= bytes(), "bytes {} to {} of {} packed ones, after {}", offset,
            offset + out.size(), bytes(), given_);
  given_ += out.size();
  while (!out.empty()) {
    if (taken_ == made_.size()) make();
    const std::size_t count = std::min(out.size(), made_.size() - taken_);
    std::copy_n(made_.begin() + static_cast<std::ptrdiff_t>(taken_), count, out.begin());
    taken_ += count;
    out = out.subspan(count);
  }
  if (given_ == bytes()) {
    block_ = {};
    made_ = {};
  }
}

bool unpack_zeros(std::span<const std::byte> packed, std::span<float> values) {
  const std::size_t size = (values.size() + 7) / 8;
  if (packed.size() < size) return false;
  const std::span<const std::byte> bits = packed.first(size);
  const std::size_t there = count_bits(bits);
  std::span<const std::byte> rest = packed.subspan(size), minus;
  if (bits_behind(bits, values.size())) return false;
  const bool ones = rest.empty();
  if (!ones && rest.size() == size + there * sizeof(float)) {
    minus = rest.first(size);
    rest = rest.subspan(size);
    if (bits_behind(minus, values.size())) return false;
    for (std::size_t i = 0; i < size; ++i)
      if ((bits[i] & minus[i]) != std::byte{0}) return false;
  }
  if (!ones && rest.size() != there * sizeof(float)) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = !minus.empty() && has_bit(minus, i) ? -0.0F : 0.0F;
    if (!has_bit(bits, i)) continue;
    values[i] = 1;
    if (ones) continue;
    std::memcpy(&values[i], rest.data(), sizeof(float));
    rest = rest.subspan(sizeof(float));
  }
  return true;
}

}  // namespace trireme::io
