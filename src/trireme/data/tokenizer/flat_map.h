#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::data {

// Spreads the bits of a key.
inline std::uint64_t mix_bits(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15ULL;
  return x ^ x >> 29;
}

// A pair of token ids as one number.
inline std::uint64_t pair_key(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} << 32 | b; }

// A hash map from 64-bit keys (not ~0) to small values, in one array: the lookup of a pair of tokens is what encoding
// and training do most. Entries are never removed.
template <class Value>
class FlatMap {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t key = kNone;
    Value value{};
  };

  explicit FlatMap(std::size_t expected = 0) { grow(std::bit_ceil(expected * 2 + 8)); }

  std::size_t size() const { return size_; }

  const Value* find(std::uint64_t key) const {
    for (std::size_t i = mix_bits(key) & mask_;; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return &entries_[i].value;
      if (entries_[i].key == kNone) return nullptr;
    }
  }
  Value* find(std::uint64_t key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

  // The value of `key`, made first where there is none. Valid until the next call.
  Value& operator[](std::uint64_t key) {
    if ((size_ + 1) * 2 > entries_.size()) grow(entries_.size() * 2);
    std::size_t i = mix_bits(key) & mask_;
    while (entries_[i].key != key && entries_[i].key != kNone) i = (i + 1) & mask_;
    if (entries_[i].key == kNone) {
      entries_[i].key = key;
      ++size_;
    }
    return entries_[i].value;
  }

  template <class F>
  void each(F&& visit) {
    for (Entry& entry : entries_)
      if (entry.key != kNone) visit(entry.key, entry.value);
  }
  void clear() {
    for (Entry& entry : entries_) entry = {};
    size_ = 0;
  }

 private:
  void grow(std::size_t slots) {
    std::vector<Entry> old(slots);
    std::swap(old, entries_);
    mask_ = slots - 1;
    for (Entry& entry : old) {
      if (entry.key == kNone) continue;
      std::size_t i = mix_bits(entry.key) & mask_;
      while (entries_[i].key != kNone) i = (i + 1) & mask_;
      entries_[i] = std::move(entry);
    }
  }

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
  std::size_t size_ = 0;
};

}  // namespace trireme::data
