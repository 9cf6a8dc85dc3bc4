#include "trireme/ir/factors.h"

#include <algorithm>
#include <array>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::ir {
namespace {

bool letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

int factor_index(std::vector<Factor>& factors, std::string_view token) {
  Factor::Kind kind = Factor::Kind::free;
  if (token.back() == '!') kind = Factor::Kind::whole;
  if (token.back() == '*') kind = Factor::Kind::partitioned;
  if (token.back() == '~') kind = Factor::Kind::halo;
  const bool exact = token.back() == '=';
  if (kind != Factor::Kind::free || exact) token.remove_suffix(1);
  if (token.empty() || !std::all_of(token.begin(), token.end(), letter_or_digit))
    fail("'{}' is not a factor's name", token);
  for (std::size_t i = 0; i < factors.size(); ++i)
    if (factors[i].name == token) {
      factors[i].exact = factors[i].exact || exact;
      if (kind == Factor::Kind::free) return static_cast<int>(i);
      if (factors[i].kind != Factor::Kind::free && factors[i].kind != kind) fail("factor '{}' is of two kinds", token);
      factors[i].kind = kind;
      return static_cast<int>(i);
    }
  factors.push_back({std::string(token), kind});
  factors.back().exact = exact;
  return static_cast<int>(factors.size()) - 1;
}

std::vector<std::vector<int>> parse_side(std::string_view side, std::vector<Factor>& factors) {
  std::vector<std::vector<int>> operands;
  if (trim(side).empty()) return operands;
  for (const std::string& operand : split(side, ',')) {
    std::vector<int> dims;
    for (const std::string& token : split(trim(operand), ' '))
      if (!token.empty() && token != "-") dims.push_back(factor_index(factors, token));
    operands.push_back(std::move(dims));
  }
  return operands;
}

}  // namespace

Factors parse_factors(std::string_view text) {
  const std::size_t arrow = text.find("->");
  if (arrow == std::string_view::npos) fail("no '->' in factors '{}'", text);
  Factors f;
  try {
    f.inputs = parse_side(text.substr(0, arrow), f.factors);
    f.outputs = parse_side(text.substr(arrow + 2), f.factors);
  } catch (Error& e) {
    throw e.within(fmt::format("factors '{}'", text));
  }
  return f;
}

std::string Factors::str() const {
  const auto side = [&](const std::vector<std::vector<int>>& operands) {
    std::string out;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (i > 0) out += ", ";
      std::vector<std::string> names;
      for (const int index : operands[i]) {
        const Factor& f = factors[static_cast<std::size_t>(index)];
        constexpr std::array kMarks = {"", "!", "*", "~"};  // in the order of Kind
        const bool exact = f.exact && f.kind == Factor::Kind::free;
        names.push_back(f.name + (exact ? "=" : kMarks[static_cast<std::size_t>(f.kind)]));
      }
      out += names.empty() ? "-" : fmt::format("{}", fmt::join(names, " "));
    }
    return out;
  };
  return side(inputs) + " -> " + side(outputs);
}

}  // namespace trireme::ir
