#pragma once
#include <memory>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/compiler/compiled.h"
#include "trireme/simulator/collective_time.h"
#include "trireme/simulator/walk.h"

namespace trireme::simulator {

// The ranks of a run as actors: those of a role are one, unless the cluster gives some of them another device, or they
// meet such ranks; then only what differs is apart.
struct Cast {
  std::vector<Actor> actors;
  std::vector<std::size_t> role;  // by actor
  std::vector<int> rank;          // by actor: the rank that stands for it
  std::vector<int> ranks;         // by actor: how many there are
  std::vector<Meeting> meetings;
  std::vector<Domain> domains;
  std::vector<std::vector<std::size_t>> group;  // by actor and instruction: of Compiled::groups, or kNoGroup
  std::vector<Spread> spreads;                  // by group: of the one that spans most nodes
  // Of actors that answer messages: their programs, with the messages.
  std::vector<std::shared_ptr<const program::Program>> answering;
};
inline constexpr std::size_t kNoGroup = ~std::size_t{0};

Cast cast_of(const compiler::Compiled& compiled, const std::string& program, const cluster::Cluster& cluster);

}  // namespace trireme::simulator
