#include "equivalence/plan_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

const char* const kMeshAxes[] = {"pp", "dp", "tp", "h", "w"};

// "group", "=" or "!=", and values.
struct Expression {
  std::string group;
  bool differs = false;
  std::vector<std::string> values;

  explicit Expression(std::string_view text) {
    const std::size_t equals = text.find('=');
    TRI_CHECK(equals != text.npos && equals > 0, "'{}' is no expression over choices", text);
    differs = text[equals - 1] == '!';
    group = text.substr(0, differs ? equals - 1 : equals);
    values = split(std::string(text.substr(equals + 1)), '|');
  }
  bool holds(const std::string& value) const {
    return differs != (std::find(values.begin(), values.end(), value) != values.end());
  }
};

const PlanGroup& group_named(std::string_view name) {
  const auto& all = plan_groups();
  const auto found = std::find_if(all.begin(), all.end(), [&](const PlanGroup& g) { return g.name == name; });
  TRI_CHECK(found != all.end(), "there is no group '{}'", name);
  return *found;
}

// The exclusions, read once: of every name they have it is known that there is such a group and such a value.
const std::vector<std::vector<Expression>>& read_exclusions() {
  static const std::vector<std::vector<Expression>> all = [] {
    std::vector<std::vector<Expression>> read;
    for (const PlanExclusion& exclusion : plan_exclusions()) {
      read.emplace_back(exclusion.all.begin(), exclusion.all.end());
      for (const Expression& e : read.back())
        for (const std::string& value : e.values) {
          const auto& values = group_named(e.group).values;
          TRI_CHECK(std::any_of(values.begin(), values.end(), [&](const auto& v) { return v.name == value; }),
                    "group '{}' has no value '{}'", e.group, value);
        }
    }
    return read;
  }();
  return all;
}

}  // namespace

const std::vector<PlanGroup>& plan_groups() {
  static const std::vector<PlanGroup> all = {
      {"model", {{"gpt2", 3}, {"llama", 3}, {"mlp", 2}, {"convnet", 2}, {"resnet18", 1}}},
      {"width", {{"small", 4}, {"wide", 1}}},
      {"sizes", {{"even"}, {"uneven"}}},
      {"layers", {{"3"}, {"4"}, {"5"}, {"6"}, {"7"}}},
      {"tables", {{"as the family has them"}, {"tied"}, {"untied"}}},
      {"key heads", {{"all"}, {"half"}, {"one"}}},
      {"documents", {{"no", 3}, {"yes", 1}}},
      {"dropout", {{"0"}, {"0.2"}}},
      {"precision", {{"f32", 6}, {"bf16", 2}, {"fp16", 2}, {"fp8", 4}}},
      {"optimizer", {{"adamw"}, {"sgd"}}},
      {"clip", {{"0"}, {"0.5"}}},
      {"statistics", {{"global"}, {"local"}}},
      {"micro-batches", {{"1", 3}, {"2", 3}, {"3", 3}, {"4", 3}, {"6", 3}, {"8", 1}, {"12", 1}}},
      {"pp", {{"1", 4}, {"2", 3}, {"3", 1}, {"4", 1}}},
      {"dp", {{"1", 3}, {"2", 3}, {"3", 1}}},
      {"tp", {{"1", 4}, {"2", 3}, {"3", 1}, {"4", 1}}},
      {"h", {{"1", 2}, {"2", 2}, {"3", 1}}},
      {"w", {{"1", 2}, {"2", 1}}},
      {"schedule",
       {{"1f1b", 9},
        {"sequential"},
        {"gpipe"},
        {"interleaved", 2},
        {"zero-bubble"},
        {"zero-bubble:auto"},
        {"file", 2},
        {"pipedream", 5},
        {"pipedream-2bw", 5}}},
      {"stages", {{"balanced", 3}, {"listed", 1}}},
      {"messages", {{"same", 6}, {"bf16", 1}, {"int8", 1}}},
      {"zero", {{"0", 3}, {"1", 2}, {"2", 2}, {"3", 2}}},
      {"sequence", {{"no", 2}, {"yes", 1}}},
      {"async_tp", {{"no", 4}, {"yes", 1}}},
      {"annotations", {{"none", 6}, {"some", 1}}},
      {"between", {{"nothing", 6}, {"rows"}, {"positions"}, {"features"}}},
      {"over dp", {{"rows", 6}, {"tables"}, {"outputs"}, {"inputs"}, {"vectors"}, {"several", 2}, {"rows given"}}},
      {"remat", {{"none", 4}, {"every:2"}, {"sqrt"}, {"selective"}, {"optimal"}, {"full"}}},
      {"offload", {{"none", 10}, {"activations"}, {"optimizer"}, {"weights"}, {"activations,optimizer"}, {"all"}}},
      {"limit", {{"none", 6}, {"given", 2}}},
      {"activations", {{"full", 8}, {"bf16"}, {"int8"}, {"sharded"}}},
      {"compress", {{"none", 14}, {"bf16"}, {"int8"}, {"powersgd:2", 2}, {"topk:0.2", 3}, {"onebit", 2}}},
      {"server", {{"none", 12}, {"sync", 2}, {"async", 2}, {"ssp:1", 2}}},
      {"prune", {{"none", 8}, {"unstructured"}, {"slices"}}},
      {"teacher", {{"no", 6}, {"yes", 2}}},
      {"rounded weights", {{"no", 6}, {"int8", 2}}},
      {"overlap", {{"yes", 2}, {"no", 1}}},
      {"overlapped gradients", {{"no"}, {"yes"}}},
      {"bucket", {{"25MiB"}, {"2000"}}},
      {"all-reduce", {{"auto", 4}, {"native"}, {"sequential"}, {"parallel"}, {"ring"}, {"recursive"}, {"tree"}}},
  };
  return all;
}

const std::vector<PlanExclusion>& plan_exclusions() {
  static const std::string images = "model=mlp|convnet|resnet18";
  static const std::string one_step = "a deep stack of batch norms is compared in one step of SGD in f32";
  static const std::string reference = "the reference of asynchronous pipelines does not go so far";
  static const std::string useless = "nothing would follow from it";
  static const std::string refused = "is refused";
  static const std::vector<PlanExclusion> all = {
      // What models have.
      {{"model!=llama", "key heads!=all"}, "only llama groups heads"},
      {{images, "tables!=as the family has them"}, "images have no tables"},
      {{images, "documents=yes"}, "images have no documents"},
      {{images, "sequence=yes"}, "images are no sequences"},
      {{"model=convnet|resnet18", "precision=fp8"}, refused},
      {{images, "teacher=yes"}, "the teacher that is there reads tokens"},
      {{images, "rounded weights=int8"}, refused},
      {{"model=gpt2|llama|mlp", "h!=1"}, refused},
      {{"model=gpt2|llama|mlp", "w!=1"}, refused},
      {{"model!=gpt2", "dropout!=0"}, "only gpt2 drops"},
      {{"model=gpt2|llama|mlp", "statistics=local"}, "they have no batch norm"},
      {{"model=resnet18", "width=wide"}, one_step},
      {{"model=convnet|resnet18", "layers!=3"}, "they have as many blocks as they have"},
      {{"width=wide", "layers!=3"}, "they would take long"},
      {{"model=resnet18", "precision!=f32"}, one_step},
      {{"model=resnet18", "optimizer=adamw"}, one_step},
      {{"model=resnet18", "micro-batches=4|6|8|12"}, one_step},
      {{"model=resnet18", "schedule=pipedream|pipedream-2bw"}, one_step},
      {{"model=resnet18", "activations=bf16|int8"}, one_step},
      {{"model=resnet18", "compress=topk:0.2|onebit"}, one_step},
      {{"model=resnet18", "prune!=none"}, one_step},
      {{"model=mlp", "remat=sqrt|selective|optimal|full"}, "its layers make nothing else to recompute"},
      // Sizes that techniques need.
      {{"width=small", "model!=resnet18", "offload!=none"}, "nothing is worth offloading"},
      {{"width=small", "limit=given"}, "nothing is worth offloading"},
      {{"width=wide", "precision=fp8"}, "it has sizes of its own"},
      {{"width=wide", "teacher=yes"}, "it has sizes of its own"},
      {{"sizes=uneven", "precision=fp8"}, "products of fp8 are of multiples of 16"},
      {{"sizes=uneven", "teacher=yes"}, "the teacher has its sizes"},
      {{"precision=fp8", "teacher=yes"}, "the teacher's sizes are no multiples of 16"},
      {{"tp=3", "teacher=yes"}, "the teacher has four heads"},
      {{"micro-batches=4", "dp=2"}, "rows of a micro-batch are shared out equally"},
      {{"micro-batches=3|6|8|12", "dp=3"}, "rows of a micro-batch are shared out equally"},
      {{"pp=1", "micro-batches=8|12"}, useless},
      {{"model=convnet|resnet18", "tp=4"}, "four channels are few"},
      // Techniques that need an axis.
      {{"pp=1", "schedule!=1f1b"}, useless},
      {{"pp=1", "stages=listed"}, useless},
      {{"pp=1", "messages!=same"}, useless},
      {{"dp=1", "zero!=0"}, useless},
      {{"dp=1", "statistics=local"}, useless},
      {{"dp=1", "compress!=none"}, refused},
      {{"tp=1", "sequence=yes"}, useless},
      {{"tp=1", "async_tp=yes"}, useless},
      {{"model=convnet|resnet18", "async_tp=yes"}, "convolutions are not made in parts of rows"},
      {{"model=mlp", "sizes=uneven", "async_tp=yes"}, "its rows are no multiples of 64 bytes"},
      {{"tp=1", "annotations=some"}, useless},
      {{"tp=1", "between!=nothing"}, useless},
      {{"precision=fp8", "between!=nothing"}, "rows of 16 are shared out over one axis"},
      {{"server=async|ssp:1", "between=rows"}, "is refused where dp and tp cannot share out the same rows"},
      {{"server!=none", "compress=topk:0.2|onebit", "between=rows"}, "is refused likewise"},
      {{"dp=1", "over dp!=rows"}, useless},
      {{images, "over dp=tables"}, "images have no tables"},
      {{"tp=1", "activations=sharded"}, refused},
      // What cannot be, or not be compared.
      {{"precision!=f32", "optimizer=adamw"},
       "AdamW makes full steps of the rounding of gradients that are nearly zero"},
      {{"precision!=f32", "rounded weights=int8"}, "a code that tips makes a whole step"},
      {{"precision!=f32", "compress=onebit"}, "signs that the rounding of 16 bits decides"},
      {{"model=convnet", "messages=int8", "compress=onebit"},
       "signs that codes of a message decide take the reference five tolerances from itself (TRIREME_PLAN_OWN)"},
      {{"precision!=f32", "activations=bf16"}, useless},
      {{"optimizer=adamw", "compress=topk:0.2"}, refused},
      {{"server!=none", "zero!=0"}, refused},
      {{"server!=none", "over dp=tables|outputs|inputs|vectors|several"}, refused},
      {{"server!=none", "compress=powersgd:2"}, refused},
      {{"server=async|ssp:1", "dp!=1"}, "several workers do not train the same twice"},
      {{"server=async|ssp:1", "compress!=none"}, "one worker compresses nothing"},
      {{"server!=none", "schedule=pipedream|pipedream-2bw"}, refused},
      {{"schedule=pipedream-2bw", "micro-batches=1"}, refused},
      {{"schedule=pipedream-2bw", "micro-batches=2", "pp=3|4"}, refused},
      {{"schedule=pipedream-2bw", "micro-batches=3", "pp=4"}, refused},
      {{"schedule=pipedream|pipedream-2bw", "precision=fp16"}, refused},
      {{"schedule=pipedream|pipedream-2bw", "tables!=untied", "model=gpt2"}, refused},
      {{"schedule=pipedream|pipedream-2bw", "tables=tied"}, refused},
      {{"model=convnet", "precision!=f32", "schedule=pipedream"},
       "in 16 bits batch norms over a few rows take the reference three tolerances from itself (TRIREME_PLAN_OWN)"},
      {{"schedule=pipedream", "dropout!=0"}, reference},
      {{"schedule=pipedream|pipedream-2bw", "precision=fp8"}, reference},
      {{"schedule=pipedream|pipedream-2bw", "activations=bf16|int8"}, reference},
      {{"schedule=pipedream|pipedream-2bw", "messages!=same"}, reference},
      {{"schedule=pipedream|pipedream-2bw", "compress!=none"}, reference},
      {{"schedule=pipedream|pipedream-2bw", "prune!=none"}, reference},
      {{"schedule=pipedream|pipedream-2bw", "statistics=local"}, reference},
      {{"limit=given", "offload=none|optimizer|weights"}, "activations are what makes room"},
      {{"limit=given", "remat=every:2|sqrt|selective|full"}, "a limit decides of the optimal ones"},
      {{"limit=given", "remat=optimal", "activations=bf16|int8"}, "what is recomputed decides what is rounded"},
  };
  return all;
}

PlanChoices::PlanChoices(std::uint32_t seed, int max_ranks) : seed_(seed) {
  constexpr std::uint64_t kAttempts = 1000;
  while (!draw(max_ranks)) {
    ++attempt_;
    TRI_CHECK(attempt_ < kAttempts, "no plan for seed {} has at most {} ranks", seed, max_ranks);
  }
}

// False: a group is left without a value.
bool PlanChoices::draw(int max_ranks) {
  values_.clear();
  std::vector<std::pair<std::uint32_t, const PlanGroup*>> order;
  for (const PlanGroup& group : plan_groups())
    order.emplace_back(group.name == "model" ? 0 : 1 + below(1U << 30, "order of " + group.name), &group);
  std::sort(order.begin(), order.end());
  for (const auto& [place, group] : order) {
    std::vector<const PlanGroup::Value*> possible;
    std::uint32_t weights = 0;
    for (const PlanGroup::Value& value : group->values)
      if (fits(*group, value.name, max_ranks)) {
        possible.push_back(&value);
        weights += value.weight;
      }
    if (possible.empty()) return false;
    std::uint32_t at = below(weights, group->name);
    for (const PlanGroup::Value* value : possible) {
      if (at < value->weight) {
        values_[group->name] = value->name;
        break;
      }
      at -= value->weight;
    }
  }
  return true;
}

bool PlanChoices::fits(const PlanGroup& group, const std::string& value, int max_ranks) const {
  const auto holds = [&](const Expression& e) {
    if (e.group == group.name) return e.holds(value);
    const auto chosen = values_.find(e.group);
    return chosen != values_.end() && e.holds(chosen->second);
  };
  for (const std::vector<Expression>& exclusion : read_exclusions())
    if (std::all_of(exclusion.begin(), exclusion.end(), holds)) return false;
  int ranks = 1;
  for (const char* axis : kMeshAxes) {
    const auto chosen = values_.find(axis);
    ranks *= axis == group.name ? std::stoi(value) : chosen == values_.end() ? 1 : std::stoi(chosen->second);
  }
  return ranks <= max_ranks;
}

bool PlanChoices::has(std::string_view expression) const {
  const Expression e(expression);
  const auto chosen = values_.find(e.group);
  return chosen != values_.end() && e.holds(chosen->second);
}

std::string PlanChoices::text() const {
  std::string line;
  for (const PlanGroup& group : plan_groups())
    if (group.name == "model" || !plain(group))
      line += fmt::format("{}{}={}", line.empty() ? "" : " · ", group.name, (*this)[group.name]);
  return line;
}

std::uint32_t PlanChoices::below(std::uint32_t limit, std::string_view name, std::uint64_t at) const {
  const RandomStream stream{.seed = seed_, .site = site_of(name), .step = attempt_};
  const auto words = stream.words(at, 0);
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(words[0]) * limit) >> 32);
}

std::string PlanChoices::one_of(std::string_view name, const std::vector<std::string>& of) const {
  return of[below(static_cast<std::uint32_t>(of.size()), name)];
}

void PlanTally::add(const PlanChoices& choices) {
  const auto& groups = plan_groups();
  for (auto a = groups.begin(); a != groups.end(); ++a) {
    ++met_[fmt::format("{}={}", a->name, choices[a->name])];
    if (choices.plain(*a)) continue;
    for (auto b = a + 1; b != groups.end(); ++b)
      if (!choices.plain(*b)) ++pairs_[{a->name, b->name}];
  }
}

std::vector<std::string> PlanTally::missing() const {
  std::vector<std::string> never;
  for (const PlanGroup& group : plan_groups())
    for (const PlanGroup::Value& value : group.values) {
      const std::string name = fmt::format("{}={}", group.name, value.name);
      if (!met_.contains(name)) never.push_back(name);
    }
  return never;
}

namespace {

// Whether the exclusions leave two values other than the plain ones to some model of some width.
bool can_meet(const PlanGroup& a, const PlanGroup& b) {
  const auto excluded = [](const std::map<std::string, std::string>& values) {
    const auto holds = [&](const Expression& e) {
      const auto chosen = values.find(e.group);
      return chosen != values.end() && e.holds(chosen->second);
    };
    return std::any_of(read_exclusions().begin(), read_exclusions().end(),
                       [&](const std::vector<Expression>& e) { return std::all_of(e.begin(), e.end(), holds); });
  };
  for (std::size_t x = 1; x < a.values.size(); ++x)
    for (std::size_t y = 1; y < b.values.size(); ++y)
      for (const PlanGroup::Value& model : group_named("model").values)
        for (const PlanGroup::Value& width : group_named("width").values) {
          std::map<std::string, std::string> values = {{a.name, a.values[x].name}, {b.name, b.values[y].name}};
          if (!values.try_emplace("model", model.name).second && values["model"] != model.name) continue;
          if (!values.try_emplace("width", width.name).second && values["width"] != width.name) continue;
          if (!excluded(values)) return true;
        }
  return false;
}

}  // namespace

std::size_t PlanTally::pairs_possible() const {
  const auto& groups = plan_groups();
  std::size_t count = 0;
  for (auto a = groups.begin(); a != groups.end(); ++a)
    for (auto b = a + 1; b != groups.end(); ++b) count += can_meet(*a, *b) ? 1 : 0;
  return count;
}

std::vector<std::string> PlanTally::pairs_missing() const {
  const auto& groups = plan_groups();
  std::vector<std::string> never;
  for (auto a = groups.begin(); a != groups.end(); ++a)
    for (auto b = a + 1; b != groups.end(); ++b)
      if (can_meet(*a, *b) && !pairs_.contains({a->name, b->name}))
        never.push_back(fmt::format("{} with {}", a->name, b->name));
  return never;
}

void PlanTally::print() const {
  for (const PlanGroup& group : plan_groups()) {
    std::vector<std::string> values;
    for (const PlanGroup::Value& value : group.values) {
      const auto met = met_.find(fmt::format("{}={}", group.name, value.name));
      values.push_back(fmt::format("{} {}", value.name, met == met_.end() ? 0 : met->second));
    }
    fmt::print("{:>22}: {}\n", group.name, fmt::join(values, ", "));
  }
  const std::vector<std::string> never = pairs_missing();
  fmt::print("{} of {} pairs that can be were never met{}{}\n", never.size(), pairs_possible(),
             never.empty() ? "" : ": ", fmt::join(never, ", "));
}

}  // namespace trireme::testing
