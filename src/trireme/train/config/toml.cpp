#include <fmt/format.h>

// toml++ 3.3 asserts what the text it reads need not hold ("[=") and then says properly what is wrong with the text. A
// build with assertions would stop there, and a build without them lets clang take the claims for granted. Neither
// here.
#undef NDEBUG
#define TOML_ASSERT(claim) static_assert(true)
#include <toml++/toml.h>

#include <sstream>

#include "trireme/core/error.h"
#include "trireme/core/toml_depth.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

Raw to_raw(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return {v->get()};
  if (const auto* v = node.as_integer()) return {std::int64_t{v->get()}};
  if (const auto* v = node.as_floating_point()) return {v->get()};
  if (const auto* v = node.as_string()) return {v->get()};
  if (const auto* v = node.as_array()) {
    Raw::List list;
    for (const toml::node& item : *v) list.push_back(to_raw(item));
    return {std::move(list)};
  }
  if (const auto* v = node.as_table()) {
    Raw::Table table;
    for (const auto& [name, item] : *v) table.push_back({std::string(name.str()), to_raw(item)});
    return {std::move(table)};
  }
  std::ostringstream date;
  if (const auto* v = node.as_date()) date << v->get();
  if (const auto* v = node.as_time()) date << v->get();
  if (const auto* v = node.as_date_time()) date << v->get();
  return {date.str()};
}

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

}  // namespace

std::vector<Entry> read_toml(std::string_view text, const std::string& file) {
  check_toml_depth(text, file);
  toml::table root;
  try {
    root = toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& e) {
    refuse("{}:{}: not valid TOML: {}", file, e.source().begin.line, e.description());
  }
  std::vector<Entry> entries;
  for (const auto& [section, node] : root) {
    const auto* table = node.as_table();
    if (table == nullptr) {
      entries.push_back({std::string(section.str()), to_raw(node), line_of(node)});
      continue;
    }
    if (table->empty() && section.str() != "parallel")
      entries.push_back({std::string(section.str()), Raw{Raw::Table{}}, line_of(node)});
    for (const auto& [name, value] : *table)
      entries.push_back({fmt::format("{}.{}", section.str(), name.str()), to_raw(value), line_of(value)});
  }
  // toml++ keeps tables sorted by name; errors should come in the order a person reads the file.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.line < b.line; });
  return entries;
}

}  // namespace trireme::train
