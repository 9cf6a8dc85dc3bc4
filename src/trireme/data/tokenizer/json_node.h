#pragma once
#include <fmt/format.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

// A place in a tokenizer.json that knows its own name, so that whatever is wrong with it can be refused by that name:
// "pre_tokenizer.pretokenizers[1].pattern: …". Does not own the document.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const nlohmann::json& value() const { return *value_; }

  // A member that must be there; or one that may be absent or null.
  JsonNode at(std::string_view key) const;
  std::optional<JsonNode> find(std::string_view key) const;
  std::vector<JsonNode> items() const;                                 // of an array
  std::vector<std::pair<std::string_view, JsonNode>> members() const;  // of an object

  std::string text() const;
  std::int64_t integer(std::int64_t low, std::int64_t high) const;

  std::string text(std::string_view key) const { return at(key).text(); }
  std::optional<std::string> optional_text(std::string_view key) const;
  bool flag(std::string_view key, bool otherwise) const;

  // Refuses an unknown "type": names what it is and what there is.
  [[noreturn]] void refuse_type(std::string_view type, std::string_view supported) const;
  [[noreturn]] void refuse(std::string_view what) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

// Components may hold others ("Sequence"); a file that nests them deeper than this is nonsense.
inline constexpr int kDeepestSequence = 16;

}  // namespace trireme::data
