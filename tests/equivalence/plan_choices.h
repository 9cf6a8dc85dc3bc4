#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::testing {

// Everything that a random plan chooses, in groups of which each has one value: "zero" is 0, 1, 2 or 3.
struct PlanGroup {
  struct Value {
    std::string name;
    std::uint32_t weight = 1;
  };
  std::string name;
  std::vector<Value> values;  // the first is plain: what a run without the technique has
};
const std::vector<PlanGroup>& plan_groups();

// Values that no plan has together, and why. Each is "group=value", "group=value|value" or "group!=value".
struct PlanExclusion {
  std::vector<std::string> all;
  std::string why;
};
const std::vector<PlanExclusion>& plan_exclusions();

// One value of every group. Each is drawn by a number of its own, a function of the seed and of the group's name: what
// one group has says nothing about another, apart from the exclusions, and a new group leaves the numbers of the others
// as they are. The model is chosen first, the others in an order that is drawn as well, so that none of two values that
// exclude each other always gives way.
class PlanChoices {
 public:
  PlanChoices() = default;
  // `max_ranks` is of the mesh.
  PlanChoices(std::uint32_t seed, int max_ranks);

  const std::string& operator[](const std::string& group) const { return values_.at(group); }
  int number(const std::string& group) const { return std::stoi((*this)[group]); }
  bool plain(const PlanGroup& group) const { return (*this)[group.name] == group.values.front().name; }
  // Whether what an exclusion names is chosen; a group without a value yet has none.
  bool has(std::string_view expression) const;
  // Where the model has no use for what was drawn.
  void set(const std::string& group, const std::string& value) { values_[group] = value; }
  // In one line, without what is plain.
  std::string text() const;

  // Further numbers, each of its own name.
  std::uint32_t below(std::uint32_t limit, std::string_view name, std::uint64_t at = 0) const;
  std::string one_of(std::string_view name, const std::vector<std::string>& of) const;
  bool coin(std::string_view name) const { return below(2, name) == 1; }

 private:
  bool draw(int max_ranks);
  bool fits(const PlanGroup& group, const std::string& value, int max_ranks) const;

  std::uint32_t seed_ = 0;
  std::uint64_t attempt_ = 0;
  std::map<std::string, std::string> values_;
};

// How often values, and pairs of groups, were met.
class PlanTally {
 public:
  void add(const PlanChoices& choices);
  // Values that were never met, as "group=value".
  std::vector<std::string> missing() const;
  // Groups that may have other than plain values together, and never had.
  std::vector<std::string> pairs_missing() const;
  std::size_t pairs_possible() const;
  void print() const;

 private:
  std::map<std::string, int> met_;                            // by "group=value"
  std::map<std::pair<std::string, std::string>, int> pairs_;  // of groups with other than plain values
};

}  // namespace trireme::testing
