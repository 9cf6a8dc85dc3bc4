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

// The group (Group::messages) of the ranks that differ along dp alone and of the servers that keep their parameters,
// and that of all servers.
inline constexpr const char* kServerMessages = "server messages";
inline constexpr const char* kAllServers = "servers";

}  // namespace trireme::program
