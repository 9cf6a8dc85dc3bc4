#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// The files that `pattern` names: one that exists, or those a glob matches, sorted by name. Refuses a folder, and a
// pattern that matches nothing; `key` is what messages call that which named it.
std::vector<std::string> find_files(const std::string& pattern, std::string_view key);

// Whether some characters of it stand for others: "shard-*.bin".
bool is_glob(const std::string& pattern);

// "shard-*.bin@0.7": what to read, and its weight in a mixture. A file that is there under the whole name is meant,
// whatever it is called.
struct WeightedPattern {
  std::string pattern;
  std::optional<double> weight;
};
// Refuses a weight that is not above 0, and weights that some of `texts` have and others do not.
std::vector<WeightedPattern> parse_weights(std::span<const std::string> texts, std::string_view key);

}  // namespace trireme::data
