#pragma once
#include <nlohmann/json.hpp>

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

// An object of settings read by key, which remembers what was asked for. Null counts as absent, as it does in
// transformers. Metadata of GGUF files are read so too. A value of the wrong kind is refused: "config.json: n_embd must
// be an integer of at least 1, got "wide"".
class HfSettings {
 public:
  // `where` names the object in messages; it must outlive this. Keys of an object inside another are shown with
  // `prefix`: "rope_scaling.factor".
  HfSettings(const nlohmann::json& object, std::string where, std::string prefix = "")
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The value under the first of several spellings of one key. Refuses two that disagree.
  std::int64_t size(std::initializer_list<std::string_view> keys, std::int64_t absent) const;
  double positive(std::initializer_list<std::string_view> keys, double absent) const;
  double number(std::string_view key, double absent) const;
  bool flag(std::string_view key, bool absent) const;
  std::string text(std::string_view key, const std::string& absent) const;
  // The object under a key; one without keys when it is absent.
  HfSettings inside(std::string_view key) const;

  // Refuses a value other than the one we compute.
  void must_be(std::string_view key, bool value) const;
  // The key may be anything, since nothing depends on it.
  void ignore(std::string_view key) const { seen_.insert(std::string(key)); }
  // Refuses a key that holds more than nothing: null, {}, [] and "" pass.
  void must_be_empty(std::string_view key, std::string_view why) const;
  std::vector<std::string> unread() const;

  [[noreturn]] void refuse_value(std::string_view key, const std::string& why) const;

 private:
  const nlohmann::json* find(std::string_view key) const;
  template <class T, class Read>
  T first(std::initializer_list<std::string_view> keys, T absent, const Read& read) const;
  [[noreturn]] void mismatch(std::string_view key, std::string_view expected) const;

  const nlohmann::json& object_;
  std::string where_;
  std::string prefix_;
  mutable std::set<std::string, std::less<>> seen_;
};

}  // namespace trireme::io
