#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/flat_map.h"

namespace trireme::data {

// The ids of words met before, for one thread. Of fixed size: a word lies in one of two places, and a new one pushes
// the older of the two out. Long words are not kept. One cache line each.
class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 31;
  static constexpr std::size_t kMaxIds = 7;

  WordCache() : slots_(kSlots) {}

  struct Key {
    std::array<std::uint64_t, 4> words{};  // the bytes, zeros, and in the last byte the length
    std::size_t slot = 0;
  };

  // `readable`: how many bytes may be read from where `word` begins.
  static Key key(std::string_view word, std::size_t readable) {
    Key k;
    if (readable >= 32) {
      std::memcpy(k.words.data(), word.data(), 32);
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t begin = i * 8;
        if (word.size() <= begin)
          k.words[i] = 0;
        else if (word.size() < begin + 8)
          k.words[i] &= ~std::uint64_t{0} >> (begin + 8 - word.size()) * 8;
      }
    } else {
      std::memcpy(k.words.data(), word.data(), word.size());
    }
    k.words[3] |= static_cast<std::uint64_t>(word.size()) << 56;
    std::uint64_t h = mix_bits(k.words[0] ^ k.words[3]);
    h = mix_bits(h ^ k.words[1]) + mix_bits(k.words[2]);
    k.slot = mix_bits(h) % kSlots;
    return k;
  }

  // Valid until the next `put`.
  std::optional<std::span<const std::int32_t>> find(const Key& key) const {
    for (const std::size_t at : {key.slot, key.slot ^ 1}) {
      const Slot& slot = slots_[at];
      if (slot.words == key.words) return std::span(slot.ids).first(slot.count);
    }
    return std::nullopt;
  }

  void put(const Key& key, std::span<const std::int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    slots_[key.slot ^ 1] = slots_[key.slot];
    Slot& slot = slots_[key.slot];
    slot.words = key.words;
    slot.count = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 16;
  struct alignas(64) Slot {
    std::array<std::uint64_t, 4> words{};  // all zero: empty, since no word has length 0
    std::uint32_t count = 0;
    std::array<std::int32_t, kMaxIds> ids{};
  };
  std::vector<Slot> slots_;
};

}  // namespace trireme::data
