#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/data/tokenizer/json_node.h"

namespace trireme::data {

// Token spellings and their ids, which need not be dense.
class Vocabulary {
 public:
  // An id beyond this is a mistake, not a vocabulary.
  static constexpr std::int64_t kMaxIds = std::int64_t{1} << 22;

  Vocabulary() = default;
  explicit Vocabulary(const JsonNode& node);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // Refuses a second spelling of one id and a second id of one spelling; `node` is who is refused.
  void add(std::string token, std::int32_t id, const JsonNode& node);

  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }  // tokens
  std::int64_t id_limit() const {
    return static_cast<std::int64_t>(spellings_.size());
  }  // one more than the largest id
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // Null where an id is no token.
  const std::string* spelling(std::int32_t id) const;

  template <class F>
  void each(F&& visit) const {
    for (const auto& [token, id] : ids_) visit(token, id);
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> spellings_;  // by id, into ids_
};

}  // namespace trireme::data
