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

// The group (Group::messages) of the ranks that differ along dp alone and of those that keep their parameters for them
// (Exchange, program/exchange.h), and that of all keepers.
inline constexpr const char* kExchangeMessages = "exchange messages";
inline constexpr const char* kKeepers = "keepers";

}  // namespace trireme::program
