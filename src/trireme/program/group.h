#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace trireme::program {

// Ranks that communicate: those of some roles whose coordinates differ along these axes alone. Without axes: all ranks
// of the run. A run has one table of groups; communicators are created from it in its order on every rank.
struct Group {
  std::vector<std::string> axes;
  std::vector<std::size_t> roles;
  std::string messages = {};  // which messages it is for (program/messages.h); empty: collectives
  friend bool operator==(const Group&, const Group&) = default;
};

}  // namespace trireme::program
