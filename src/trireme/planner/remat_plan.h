#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/passes/chain.h"

namespace trireme::planner {

// What becomes of a run of a chain's segments between their forward and their gradients.
enum class Hold : std::uint8_t {
  keep,       // everything their gradients read
  expensive,  // all but what is cheap to make again from what is kept, or some of that
  input,      // only what enters the first of them: the rest is recomputed, together
};

struct RematPlan {
  struct Group {
    std::int32_t segments = 1;
    Hold hold = Hold::keep;
    // expensive: nodes whose values are kept although they are cheap, by their place in the group, rising.
    std::vector<std::int32_t> kept = {};
    friend bool operator==(const Group&, const Group&) = default;
  };
  std::vector<Group> groups;  // all segments of the chain, in order
  friend bool operator==(const RematPlan&, const RematPlan&) = default;

  // "keep 2, input 4+4+3, expensive 1+1:0.3" and back; the last keeps what nodes 0 and 3 of its segment make.
  std::string str() const;
  static RematPlan parse(const std::string& text);
};

// For each value whether the plan forgets it. A group with a segment whose gradients follow at once is kept, whatever
// the plan says.
std::vector<bool> forgotten_values(const ir::Graph& graph, const passes::Chain& chain, const RematPlan& plan);
// Their names: what passes/remat.h takes.
std::vector<std::string> forgotten_names(const ir::Graph& graph, const passes::Chain& chain, const RematPlan& plan);

}  // namespace trireme::planner
