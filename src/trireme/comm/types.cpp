#include "trireme/comm/types.h"

#include <array>
#include <string>
#include <vector>

#include "trireme/core/text.h"

namespace trireme::comm {
namespace {

constexpr std::array<const char*, 5> kReduces = {"sum", "mean", "max", "min", "prod"};
constexpr std::array<const char*, 7> kAlgorithms = {"auto", "native",    "sequential", "parallel",
                                                    "ring", "recursive", "tree"};
constexpr std::array<const char*, 12> kCollectives = {"barrier",    "broadcast",  "scatter",        "gather",
                                                      "reduce",     "all_to_all", "all_reduce",     "reduce_scatter",
                                                      "all_gather", "exchange",   "point to point", "split"};

template <class E, std::size_t N>
E parse(const char* what, const std::array<const char*, N>& names, std::string_view text) {
  for (std::size_t i = 0; i < N; ++i)
    if (text == names[i]) return static_cast<E>(i);
  const std::vector<std::string> candidates(names.begin(), names.end());
  std::string all;
  for (const std::string& name : candidates) all += (all.empty() ? "" : ", ") + name;
  const auto near = nearest(text, candidates);
  refuse("unknown {} \"{}\": {}{}", what, text, near ? "did you mean \"" + *near + "\"? One of " : "one of ", all);
}

}  // namespace

const char* name_of(Reduce reduce) { return kReduces[static_cast<std::size_t>(reduce)]; }
const char* name_of(Algorithm algorithm) { return kAlgorithms[static_cast<std::size_t>(algorithm)]; }
const char* name_of(Collective collective) { return kCollectives[static_cast<std::size_t>(collective)]; }
Algorithm parse_algorithm(std::string_view text) { return parse<Algorithm>("all-reduce algorithm", kAlgorithms, text); }

}  // namespace trireme::comm
