#include "trireme/ir/attributes.h"

#include <algorithm>
#include <array>

#include "trireme/core/error.h"

namespace trireme::ir {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + '"';
}

template <class T>
const T& typed(const Attributes& attributes, std::string_view name) {
  const Attribute* found = attributes.find(name);
  TRI_CHECK(found != nullptr, "no attribute '{}'", name);
  const T* value = std::get_if<T>(found);
  TRI_CHECK(value != nullptr, "attribute '{}' is {}", name, name_of(type_of(*found)));
  return *value;
}

}  // namespace

const char* name_of(AttributeType type) {
  constexpr std::array<const char*, 5> names = {"a boolean", "an integer", "a real", "a text", "a list of integers"};
  return names[static_cast<std::size_t>(type)];
}

AttributeType type_of(const Attribute& attribute) { return static_cast<AttributeType>(attribute.index()); }

std::string to_text(const Attribute& attribute) {
  struct Printer {
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(std::int64_t i) const { return fmt::format("{}", i); }
    std::string operator()(double d) const {
      std::string text = fmt::format("{}", d);
      const bool looks_integral = text.find_first_of(".en") == std::string::npos;
      return looks_integral ? text + ".0" : text;
    }
    std::string operator()(const std::string& s) const { return quoted(s); }
    std::string operator()(const std::vector<std::int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ",")); }
  };
  return std::visit(Printer{}, attribute);
}

Attributes::Attributes(std::initializer_list<std::pair<std::string, Attribute>> entries) {
  for (const auto& [name, value] : entries) set(name, value);
}

void Attributes::set(std::string name, Attribute value) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const auto& e, const std::string& n) { return e.first < n; });
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    // Every node has some, and mostly as many as it will ever have: no room is kept for more.
    const auto place = at - entries_.begin();
    entries_.reserve(entries_.size() + 1);
    entries_.insert(entries_.begin() + place, {std::move(name), std::move(value)});
  }
}

const Attribute* Attributes::find(std::string_view name) const {
  for (const auto& entry : entries_)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

bool Attributes::boolean(std::string_view name) const { return typed<bool>(*this, name); }
std::int64_t Attributes::integer(std::string_view name) const { return typed<std::int64_t>(*this, name); }
double Attributes::real(std::string_view name) const { return typed<double>(*this, name); }
const std::string& Attributes::text(std::string_view name) const { return typed<std::string>(*this, name); }
const std::vector<std::int64_t>& Attributes::integers(std::string_view name) const {
  return typed<std::vector<std::int64_t>>(*this, name);
}

}  // namespace trireme::ir
