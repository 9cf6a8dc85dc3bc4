#pragma once
#include <string>
#include <string_view>

namespace trireme {

// Refuses TOML whose keys have more parts, or whose values lie in more lists and tables, than anything that is read
// here: a parser that calls itself for each of them, as toml++ does, would run out of stack. Before each parse. `file`
// is for the message.
void check_toml_depth(std::string_view text, const std::string& file);

}  // namespace trireme
