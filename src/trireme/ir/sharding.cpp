#include "trireme/ir/sharding.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::ir {
namespace {

const char* name_of(Sharding::Reduce reduce) {
  switch (reduce) {
    case Sharding::Reduce::sum: return "sum";
    case Sharding::Reduce::max: return "max";
    case Sharding::Reduce::softmax: break;
  }
  return "softmax";
}

bool axis_name(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

[[noreturn]] void malformed(std::string_view text) {
  fail("'{}' is not a sharding; expected something like [dp,_,tp+h] partial(sum:tp)", text);
}

}  // namespace

bool Sharding::replicated() const {
  for (const auto& axes : dims)
    if (!axes.empty()) return false;
  return partial.empty();
}

bool operator==(const Sharding& a, const Sharding& b) {
  return (a.replicated() && b.replicated()) || (a.dims == b.dims && a.partial == b.partial);
}

std::string Sharding::str() const {
  if (replicated()) return "";
  std::vector<std::string> parts;
  for (const auto& axes : dims) parts.push_back(axes.empty() ? "_" : fmt::format("{}", fmt::join(axes, "+")));
  std::string out = fmt::format("[{}]", fmt::join(parts, ","));
  if (!partial.empty()) {
    std::vector<std::string> sums;
    for (const Partial& p : partial) sums.push_back(fmt::format("{}:{}", name_of(p.reduce), p.axis));
    out += fmt::format(" partial({})", fmt::join(sums, ","));
  }
  return out;
}

Sharding parse_sharding(std::string_view text) {
  Sharding result;
  std::string_view rest = trim(text);
  if (rest.empty()) return result;
  const std::size_t close = rest.find(']');
  if (rest.front() != '[' || close == std::string_view::npos) malformed(text);
  if (close > 1)
    for (const std::string& part : split(rest.substr(1, close - 1), ',')) {
      std::vector<std::string> axes;
      if (trim(part) != "_") axes = split(trim(part), '+');
      if (!std::all_of(axes.begin(), axes.end(), axis_name)) malformed(text);
      result.dims.push_back(std::move(axes));
    }
  rest = trim(rest.substr(close + 1));
  if (rest.empty()) return result;
  constexpr std::string_view opening = "partial(";
  if (!rest.starts_with(opening) || rest.back() != ')') malformed(text);
  rest.remove_prefix(opening.size());
  rest.remove_suffix(1);
  for (const std::string& part : split(rest, ',')) {
    const std::vector<std::string> pair = split(trim(part), ':');
    if (pair.size() != 2 || !axis_name(pair[1])) malformed(text);
    Sharding::Partial p{pair[1], Sharding::Reduce::sum};
    if (pair[0] == "max")
      p.reduce = Sharding::Reduce::max;
    else if (pair[0] == "softmax")
      p.reduce = Sharding::Reduce::softmax;
    else if (pair[0] != "sum")
      malformed(text);
    result.partial.push_back(std::move(p));
  }
  return result;
}

}  // namespace trireme::ir
