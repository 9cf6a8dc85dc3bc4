#pragma once
#include <nlohmann/json_fwd.hpp>

#include <iosfwd>
#include <string_view>

namespace trireme {

// The value that a text holds; one that is_discarded() where the text is no valid JSON. (The parser's templates take
// seconds to compile: those of the library are made here, once.)
nlohmann::json parse_json(std::string_view text);
nlohmann::json parse_json(std::istream& in);
// Members stay in the order that they are written in.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

}  // namespace trireme
