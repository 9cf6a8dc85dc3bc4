#include "trireme/core/json.h"

#include <nlohmann/json.hpp>

#include <istream>
#include <iterator>
#include <string>

namespace trireme {

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }

nlohmann::json parse_json(std::istream& in) {
  return parse_json(std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

}  // namespace trireme
