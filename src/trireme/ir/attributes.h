#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trireme::ir {

// bool, int, float, text, list of ints. Floats print so that they parse back to the same bits.
using Attribute = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

enum class AttributeType { boolean, integer, real, text, integers };  // in the order of the variant
const char* name_of(AttributeType type);
AttributeType type_of(const Attribute& attribute);
std::string to_text(const Attribute& attribute);

// What an op accepts: the verifier refuses anything else, and `Graph::add` fills in the defaults.
struct AttributeSpec {
  std::string name;
  Attribute fallback;  // its type is the attribute's type
};

// Sorted by name; small enough for a vector.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> entries);

  void set(std::string name, Attribute value);
  const Attribute* find(std::string_view name) const;

  // The attribute must exist and have the type: `Graph::add` has seen to both.
  bool boolean(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<std::int64_t>& integers(std::string_view name) const;

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool empty() const { return entries_.empty(); }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::vector<std::pair<std::string, Attribute>> entries_;
};

}  // namespace trireme::ir
