#include "trireme/cluster/schema.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cluster {
namespace {

// Writes the keys of one table; what is nested follows as tables of their own. Values as at the start are left out.
class Printer {
 public:
  explicit Printer(std::string path) : path_(std::move(path)) {}

  void text(const char* key, const std::string& value, bool = false) {
    if (!value.empty()) line(key, quoted(value));
  }
  void choice(const char* key, const std::string& value, const std::vector<std::string_view>&) { text(key, value); }
  void flag(const char* key, bool value) { line(key, value ? "true" : "false"); }
  void number(const char* key, double value, double, bool = false) { line(key, fmt::format("{}", value)); }
  void factor(const char* key, double value, bool = false) { line(key, fmt::format("{}", value)); }
  void share(const char* key, double value) { line(key, fmt::format("{}", value)); }
  void integer(const char* key, std::int64_t value, std::int64_t) { line(key, fmt::format("{}", value)); }
  void bytes(const char* key, double value, bool = false) { line(key, quoted(fmt::format("{:.0f}B", value))); }
  void bandwidth(const char* key, double value, bool = false) {
    if (value > 0) line(key, quoted(fmt::format("{:.0f}B/s", value)));
  }
  void seconds(const char* key, double value) {
    if (value > 0) line(key, quoted(fmt::format("{}s", value)));
  }
  void numbers(const char* key, const std::vector<double>& values) {
    line(key, fmt::format("[{}]", fmt::join(values, ", ")));
  }
  void figures(const char* key, const std::map<std::string, double>& values, bool = false) {
    std::string list;
    for (const auto& [name, value] : values)
      list += fmt::format("{}{} = {}", list.empty() ? "" : ", ", quoted_key(name), value);
    if (!values.empty()) line(key, "{ " + list + " }");
  }
  template <class T>
  void table(const char* key, T& value, bool = false) {
    Printer inner(full(key));
    visit(inner, value);
    if (value == T{}) return;
    nested_ += fmt::format("\n[{}]\n{}", full(key), inner.str());
  }
  template <class T>
  void tables(const char* key, std::map<std::string, T>& values) {
    for (auto& [name, value] : values) {
      Printer inner(full(key) + "." + quoted_key(name));
      visit(inner, value);
      nested_ += fmt::format("\n[{}.{}]\n{}", full(key), quoted_key(name), inner.str());
    }
  }
  template <class T>
  void list(const char* key, std::vector<T>& values) {
    if (values.empty()) return;
    std::string text = "[\n";
    for (T& value : values) {
      Printer inner("");
      visit(inner, value);
      std::string fields = inner.lines_;
      fields.pop_back();
      for (std::size_t at = 0; (at = fields.find('\n', at)) != std::string::npos;) fields.replace(at, 1, ", ");
      text += fmt::format("  {{ {} }},\n", fields);
    }
    line(key, text + "]");
  }
  std::string str() const { return lines_ + nested_; }

 private:
  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out + "\"";
  }
  static std::string quoted_key(const std::string& text) {
    const bool bare =
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string::npos;
    return bare && !text.empty() ? text : quoted(text);
  }
  void line(const char* key, const std::string& value) { lines_ += fmt::format("{} = {}\n", key, value); }
  std::string full(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

  std::string path_;
  std::string lines_;
  std::string nested_;
};

std::string rate(double per_second, const char* unit) {
  constexpr std::array<std::pair<double, const char*>, 4> kUnits = {{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1, ""}}};
  for (const auto& [size, prefix] : kUnits)
    if (per_second >= size) return fmt::format("{:.4g} {}{}", per_second / size, prefix, unit);
  return fmt::format("{:.4g} {}", per_second, unit);
}

}  // namespace

const Ranks* Cluster::override_of(std::int64_t rank) const {
  for (const Ranks& r : ranks)
    if (r.first <= rank && rank <= r.last) return &r;
  return nullptr;
}

const Device& Cluster::device_of(std::int64_t rank) const {
  const Ranks* own = override_of(rank);
  return own == nullptr || own->device.empty() ? device : devices.at(own->device);
}

double Cluster::memory_of(std::int64_t rank, std::int64_t world) const {
  const Device& own = device_of(rank);
  return own.kind == "cpu" ? own.memory / static_cast<double>(ranks_of_node(world)) : own.memory;
}

std::string to_toml(const Cluster& cluster) {
  Cluster copy = cluster;
  Printer printer("");
  visit(printer, copy);
  return printer.str();
}

std::string summary(const Cluster& c) {
  std::string flops;
  for (const auto& [dtype, peak] : c.device.flops)
    flops += fmt::format("{}{} {}", flops.empty() ? "" : ", ", dtype, rate(peak, "FLOP/s"));
  std::string text = fmt::format("cluster {}: {}, {} per node\n", c.name, c.device.name, c.node.devices);
  text += fmt::format("  peak     {}{}\n", flops, c.device.kind == "cpu" ? " of a core" : "");
  text += fmt::format("  memory   {}, {}\n", format_bytes(static_cast<std::uint64_t>(c.device.memory)),
                      rate(c.device.memory_bandwidth, "B/s"));
  text += fmt::format("  node     {}, {:.3g} us a hop\n", rate(c.inside.bandwidth, "B/s"), 1e6 * c.inside.latency);
  text +=
      fmt::format("  network  {} per device, {:.3g} us a hop\n",
                  rate(c.network.bandwidth / static_cast<double>(c.network.sharing), "B/s"), 1e6 * c.network.latency);
  if (c.device.price > 0) text += fmt::format("  price    ${:.2f} per hour and device\n", c.device.price);
  if (!c.source.empty()) text += fmt::format("  source   {}\n", c.source);
  return text;
}

}  // namespace trireme::cluster
