#include <fmt/format.h>

// As train/config/toml.cpp: toml++ 3.3 asserts what the text it reads need not hold.
#undef NDEBUG
#define TOML_ASSERT(claim) static_assert(true)
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "trireme/cluster/schema.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/toml_depth.h"

namespace trireme::cluster {
namespace {

// Takes the values of one table. Keys that nobody asked for are refused at the end.
class Reader {
 public:
  Reader(const toml::table& table, std::string file, std::string path)
      : table_(table), file_(std::move(file)), path_(std::move(path)) {}

  void text(const char* key, std::string& value, bool required = false) {
    const toml::node* node = find(key, required);
    if (node == nullptr) return;
    if (!node->is_string()) wrong(*node, key, "text in quotes");
    value = **node->as_string();
  }
  void choice(const char* key, std::string& value, const std::vector<std::string_view>& choices) {
    text(key, value);
    const std::vector<std::string> names(choices.begin(), choices.end());
    if (std::find(names.begin(), names.end(), value) != names.end()) return;
    const auto near = nearest(value, names);
    refuse("{}: {} = \"{}\": expected {}{}", place(*table_.get(key)), full(key), value, fmt::join(names, ", "),
           near ? fmt::format("; did you mean \"{}\"?", *near) : "");
  }
  void flag(const char* key, bool& value) {
    const toml::node* node = find(key, false);
    if (node == nullptr) return;
    if (!node->is_boolean()) wrong(*node, key, "true or false");
    value = **node->as_boolean();
  }
  void number(const char* key, double& value, double least, bool required = false) {
    const toml::node* node = find(key, required);
    if (node == nullptr) return;
    value = number_of(*node, key);
    if (!(value >= least)) wrong(*node, key, fmt::format("a number of at least {}", least));
  }
  void factor(const char* key, double& value, bool required = false) {
    const toml::node* node = find(key, required);
    if (node == nullptr) return;
    value = number_of(*node, key);
    if (!(value > 0)) wrong(*node, key, "a number above 0");
  }
  void share(const char* key, double& value) {
    const toml::node* node = find(key, false);
    if (node == nullptr) return;
    value = number_of(*node, key);
    if (!(value > 0 && value <= 1)) wrong(*node, key, "a share above 0 and at most 1");
  }
  void integer(const char* key, std::int64_t& value, std::int64_t least) {
    const toml::node* node = find(key, false);
    if (node == nullptr) return;
    if (!node->is_integer() || **node->as_integer() < least)
      wrong(*node, key, fmt::format("a whole number of at least {}", least));
    if (**node->as_integer() > kMaxCount) wrong(*node, key, fmt::format("a whole number of at most {}", kMaxCount));
    value = **node->as_integer();
  }
  void bytes(const char* key, double& value, bool required = false) {
    quantity(key, value, required, "a size such as \"80GB\"", [](const std::string& t) -> std::optional<double> {
      const auto bytes = parse_bytes(t);
      return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
    });
  }
  void bandwidth(const char* key, double& value, bool required = false) {
    quantity(key, value, required, "a bandwidth such as \"300GB/s\"",
             [](const std::string& t) -> std::optional<double> {
               if (!t.ends_with("/s")) return std::nullopt;
               const auto bytes = parse_bytes(t.substr(0, t.size() - 2));
               return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
             });
  }
  void seconds(const char* key, double& value) {
    quantity(key, value, false, "a time such as \"3us\"", [](const std::string& t) { return parse_duration(t); });
  }
  void numbers(const char* key, std::vector<double>& values) {
    const toml::node* node = find(key, false);
    if (node == nullptr) return;
    if (!node->is_array()) wrong(*node, key, "a list of numbers");
    for (const toml::node& item : *node->as_array()) values.push_back(number_of(item, key));
  }
  void figures(const char* key, std::map<std::string, double>& values, bool required = false) {
    const toml::node* node = find(key, required);
    if (node == nullptr) return;
    if (!node->is_table()) wrong(*node, key, "a table of numbers");
    for (const auto& [name, item] : *node->as_table()) {
      const double value = number_of(item, key);
      if (!(value > 0)) wrong(item, key, "numbers above 0");
      values[std::string(name.str())] = value;
    }
  }
  template <class T>
  void table(const char* key, T& value, bool required = false) {
    const toml::node* node = find(key, required);
    if (node == nullptr) return;
    if (!node->is_table()) wrong(*node, key, "a table");
    inner(*node->as_table(), full(key), value);
  }
  template <class T>
  void tables(const char* key, std::map<std::string, T>& values) {
    const toml::node* node = find(key, false);
    if (node == nullptr) return;
    if (!node->is_table()) wrong(*node, key, "a table of tables");
    for (const auto& [name, item] : *node->as_table()) {
      if (!item.is_table()) wrong(item, key, "a table of tables");
      inner(*item.as_table(), full(key) + "." + std::string(name.str()), values[std::string(name.str())]);
    }
  }
  template <class T>
  void list(const char* key, std::vector<T>& values) {
    const toml::node* node = find(key, false);
    if (node == nullptr) return;
    if (!node->is_array()) wrong(*node, key, "a list of tables");
    for (const toml::node& item : *node->as_array()) {
      if (!item.is_table()) wrong(item, key, "a list of tables");
      inner(*item.as_table(), full(key), values.emplace_back());
    }
  }
  void end() const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      const auto near = nearest(name, known_);
      refuse("{}: unknown key {}{}", place(node), full(name),
             near ? fmt::format("; did you mean {}?", full(*near))
                  : fmt::format("; the keys are {}", fmt::join(known_, ", ")));
    }
  }

 private:
  template <class T>
  void inner(const toml::table& table, const std::string& path, T& value) const {
    Reader reader(table, file_, path);
    visit(reader, value);
    reader.end();
  }
  const toml::node* find(const char* key, bool required) {
    known_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (node != nullptr || !required) return node;
    std::vector<std::string> given;
    for (const auto& [name, value] : table_) given.emplace_back(name.str());
    const auto near = nearest(key, given);
    refuse("{}: {} is missing{}", place(table_), full(key),
           near ? fmt::format("; is {} meant for it?", full(*near)) : "");
  }
  template <class Parse>
  void quantity(const char* key, double& value, bool required, const char* expected, Parse&& parse) {
    const toml::node* node = find(key, required);
    if (node == nullptr) return;
    const auto parsed = node->is_string() ? parse(**node->as_string()) : std::nullopt;
    if (!parsed || *parsed < 0 || (required && *parsed == 0)) wrong(*node, key, expected);
    value = *parsed;
  }
  double number_of(const toml::node& node, const char* key) const {
    const auto value = node.value<double>();
    if (!node.is_number() || !value || !std::isfinite(*value)) wrong(node, key, "a number");
    return *value;
  }
  std::string full(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  std::string place(const toml::node& node) const {
    return node.source().begin.line == 0 ? file_ : fmt::format("{}:{}", file_, node.source().begin.line);
  }
  [[noreturn]] void wrong(const toml::node& node, const char* key, const std::string& expected) const {
    std::string shown;
    if (node.is_string()) shown = fmt::format(" = \"{}\"", **node.as_string());
    if (const auto number = node.value<double>(); node.is_number() && number) shown = fmt::format(" = {}", *number);
    if (node.is_integer()) shown = fmt::format(" = {}", **node.as_integer());
    refuse("{}: {}{}: expected {}", place(node), full(key), shown, expected);
  }

  const toml::table& table_;
  std::string file_;
  std::string path_;
  std::vector<std::string> known_;
};

template <class T>
std::vector<std::string> names_of(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  names.reserve(map.size());
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

void check(Cluster& c, const std::string& file) {
  if (c.software.empty()) c.software["flash"] = {};
  if (!c.software.contains(c.generation)) {
    const std::vector<std::string> names = names_of(c.software);
    const auto near = nearest(c.generation, names);
    refuse("{}: generation = \"{}\" has no table software.{}; there {}{}", file, c.generation, c.generation,
           names.size() == 1 ? "is " : "are ", near ? *near : fmt::format("{}", fmt::join(names, ", ")));
  }
  for (const Ranks& r : c.ranks) {
    if (r.last < r.first) refuse("{}: ranks: last = {} is before first = {}", file, r.last, r.first);
    if (!(r.speed > 0 && r.bandwidth > 0)) refuse("{}: ranks: speed and bandwidth must be above 0", file);
    if (r.device.empty() || c.devices.contains(r.device)) continue;
    const std::vector<std::string> names = names_of(c.devices);
    const auto near = nearest(r.device, names);
    refuse("{}: ranks: there is no table devices.{}{}", file, r.device,
           near ? fmt::format("; did you mean \"{}\"?", *near) : "");
  }
  if (c.device.kind == "cpu" && c.node.cores == 0)
    refuse("{}: node.cores is missing: the ranks of a CPU share its cores", file);
}

}  // namespace

Cluster parse_cluster(std::string_view text, const std::string& file) {
  check_toml_depth(text, file);
  toml::table table;
  try {
    table = toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    refuse("{}:{}: {}", file, e.source().begin.line, e.description());
  }
  Cluster cluster;
  Reader reader(table, file, "");
  visit(reader, cluster);
  reader.end();
  // One node: what is between nodes is never used.
  if (cluster.network.bandwidth == 0) cluster.network = cluster.inside;
  check(cluster, file);
  return cluster;
}

Cluster load_cluster(const std::string& name) {
  std::vector<std::string> names;
  for (const Builtin& builtin : builtin_clusters()) {
    if (builtin.name == name) return parse_cluster(builtin.toml, fmt::format("cluster {}", name));
    names.emplace_back(builtin.name);
  }
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(name, unknown)) {
    const auto near = nearest(name, names);
    refuse("there is no cluster \"{}\" and no such file{}; the built-in ones are {}", name,
           near ? fmt::format("; did you mean \"{}\"?", *near) : "", fmt::join(names, ", "));
  }
  std::ifstream in(name, std::ios::binary);
  if (!in) refuse("{}: cannot be read", name);
  return parse_cluster(std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()), name);
}

}  // namespace trireme::cluster
