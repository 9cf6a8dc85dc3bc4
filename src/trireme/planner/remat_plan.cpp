#include "trireme/planner/remat_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/passes/saved_values.h"

namespace trireme::planner {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;
using passes::Chain;
using passes::SavedValue;

constexpr std::array<const char*, 3> kHolds = {"keep", "expensive", "input"};

// Cheap values whose operands are there anyway or cheap themselves: making them again needs nothing more to be kept.
std::vector<bool> cheap_values(const Graph& graph) {
  const std::vector<ValueId> storage = passes::storage_of(graph);
  std::vector<bool> there(graph.values.size(), false);  // in the gradient phases, whatever is forgotten
  for (std::size_t v = 0; v < there.size(); ++v) there[v] = graph.values[v].kind != ir::ValueInfo::Kind::node;
  for (const SavedValue& value : passes::saved_values(graph)) there[index(value.value)] = true;
  std::vector<bool> cheap(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.phase != ir::Phase::forward || !passes::is_cheap(graph, node)) continue;
    const bool possible = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id == kNone || there[index(storage[index(id)])] || cheap[index(id)];
    });
    for (const ValueId id : node.outputs) cheap[index(id)] = possible;
  }
  return cheap;
}

std::int32_t parse_number(std::string_view text, std::int32_t least, const char* what) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least) refuse("'{}' is not {}", text, what);
  return number;
}

}  // namespace

std::string RematPlan::str() const {
  std::string text;
  const Group* before = nullptr;
  for (const Group& group : groups) {
    if (before != nullptr && before->hold == group.hold)
      text += fmt::format("+{}", group.segments);
    else
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kHolds[static_cast<std::size_t>(group.hold)],
                          group.segments);
    if (!group.kept.empty()) text += fmt::format(":{}", fmt::join(group.kept, "."));
    before = &group;
  }
  return text;
}

RematPlan RematPlan::parse(const std::string& text) {
  RematPlan plan;
  for (const std::string& part : split(text, ',')) {
    const std::string run(trim(part));
    const std::size_t space = run.find(' ');
    const auto hold = std::find(kHolds.begin(), kHolds.end(), run.substr(0, space));
    if (hold == kHolds.end() || space == std::string::npos)
      refuse(
          "'{}' is not a part of a rematerialisation plan; expected keep, expensive or input and numbers of segments",
          run);
    for (const std::string& text_of_group : split(run.substr(space + 1), '+')) {
      const std::size_t colon = text_of_group.find(':');
      RematPlan::Group group{parse_number(text_of_group.substr(0, colon), 1, "a number of segments"),
                             static_cast<Hold>(hold - kHolds.begin())};
      if (colon != std::string::npos) {
        if (group.hold != Hold::expensive) refuse("'{}': only a part that is expensive keeps some of its nodes", run);
        for (const std::string& node : split(text_of_group.substr(colon + 1), '.'))
          group.kept.push_back(parse_number(node, 0, "a node of a group"));
      }
      plan.groups.push_back(std::move(group));
    }
  }
  return plan;
}

std::vector<bool> forgotten_values(const Graph& graph, const Chain& chain, const RematPlan& plan) {
  std::int64_t planned = 0;
  for (const RematPlan::Group& group : plan.groups) planned += group.segments;
  if (planned != std::ssize(chain.segments))
    fail("the rematerialisation plan is for {} segments, the graph has {}", planned, chain.segments.size());
  const std::vector<ValueId> storage = passes::storage_of(graph);
  const std::vector<bool> cheap = cheap_values(graph);
  std::vector<bool> saved(graph.values.size(), false);
  for (const SavedValue& value : passes::saved_values(graph)) saved[index(value.value)] = true;
  std::vector<bool> forgotten(graph.values.size(), false);
  std::size_t segment = 0;
  for (const RematPlan::Group& group : plan.groups) {
    const std::size_t end = segment + index(group.segments);
    const ValueId passed_on = chain.output(end - 1);
    if (group.hold != Hold::keep && !chain.segments[end - 1].gradients_follow)
      for (std::size_t i = chain.segments[segment].begin; i < chain.segments[end - 1].end; ++i)
        for (const Node& node = graph.nodes[index(chain.nodes[i])]; const ValueId id : node.outputs)
          forgotten[index(id)] = storage[index(id)] != passed_on && (group.hold == Hold::input || cheap[index(id)]) &&
                                 // Ranks need not meet again, but for halos: to keep them is to keep the image twice.
                                 (!node.op->traits.collective || ops::is_halo(*node.op));
    for (const std::int32_t place : group.kept) {
      if (place < 0 || chain.segments[segment].begin + index(place) >= chain.segments[end - 1].end)
        fail("the rematerialisation plan keeps node {} of a group that has fewer", place);
      // What it makes for the forward phase alone is not kept for that.
      for (const ValueId id : graph.nodes[index(chain.nodes[chain.segments[segment].begin + index(place)])].outputs)
        if (saved[index(id)]) forgotten[index(id)] = false;
    }
    segment = end;
  }
  // A view of what is kept needs no copy.
  for (std::size_t v = 0; v < forgotten.size(); ++v)
    if (forgotten[v] && storage[v] != static_cast<ValueId>(v)) forgotten[v] = forgotten[index(storage[v])];
  return forgotten;
}

std::vector<std::string> forgotten_names(const Graph& graph, const Chain& chain, const RematPlan& plan) {
  const std::vector<bool> forgotten = forgotten_values(graph, chain, plan);
  std::vector<std::string> names;
  for (std::size_t v = 0; v < forgotten.size(); ++v)
    if (forgotten[v]) names.push_back(graph.values[v].name);
  return names;
}

}  // namespace trireme::planner
