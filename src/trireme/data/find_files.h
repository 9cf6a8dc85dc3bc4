#pragma once
#include <string>
#include <vector>

namespace trireme::data {

// The files that `pattern` names: one that exists, or those a glob matches, sorted by name. Refuses a folder, and a
// pattern that matches nothing; `key` names the configuration key.
std::vector<std::string> find_files(const std::string& pattern, const std::string& key);

}  // namespace trireme::data
