#include "trireme/cli/cluster_choice.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/on_cluster.h"

namespace trireme::cli {

cluster::Cluster chosen_cluster(const std::string& given, const std::string& generation) {
  std::string name = given;
  if (name.empty()) {
    name = train::own_cluster_file();
    if (!std::filesystem::exists(name)) {
      std::vector<std::string> names;
      for (const cluster::Builtin& builtin : cluster::builtin_clusters()) names.emplace_back(builtin.name);
      refuse("--cluster is missing: one of {}, a file, or this machine once `trireme calibrate` has measured it",
             fmt::join(names, ", "));
    }
  }
  cluster::Cluster cluster = cluster::load_cluster(name);
  if (generation.empty()) return cluster;
  std::vector<std::string> known;
  for (const auto& [own, software] : cluster.software) known.push_back(own);
  if (!cluster.software.contains(generation)) {
    const auto near = nearest(generation, known);
    refuse("--generation {}: cluster {} has {}{}", generation, cluster.name, fmt::join(known, ", "),
           near ? fmt::format("; did you mean {}?", *near) : "");
  }
  cluster.generation = generation;
  return cluster;
}

double parse_tokens(const std::string& text) {
  std::size_t used = 0;
  double count = 0;
  try {
    count = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  constexpr std::array<std::pair<const char*, double>, 5> kUnits = {
      {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}}};
  for (const auto& [name, factor] : kUnits)
    if (used > 0 && unit == name && count > 0 && std::isfinite(count)) return count * factor;
  refuse("--tokens {}: expected a number of tokens such as 300B, 1.5T or 20000000", text);
}

}  // namespace trireme::cli
