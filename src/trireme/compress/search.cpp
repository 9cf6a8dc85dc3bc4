#include "trireme/compress/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::compress {
namespace {

using Kind = Budget::Kind;

// Draws for one more shape, after which there are none that were not seen.
constexpr int kDraws = 200;

class Search {
 public:
  Search(const ShapeSpace& space, const SearchOptions& options) : space_(space), options_(options) {}

  SearchResult run() {
    draw();
    if (result_.candidates.empty()) return std::move(result_);
    halve();
    for (std::int64_t g = 0; g < options_.generations && !result_.stopped; ++g) evolve(g);
    for (const Candidate& c : result_.candidates) {
      if (!c.loss.contains(options_.steps)) continue;
      if (result_.best < 0 || last_loss(c.id) < last_loss(result_.best)) result_.best = c.id;
      if (has_base_ && c.id == 0) result_.base = 0;
    }
    return std::move(result_);
  }

 private:
  Candidate& at(std::int64_t id) { return result_.candidates[static_cast<std::size_t>(id)]; }
  double last_loss(std::int64_t id) { return at(id).loss.at(options_.steps); }

  bool add(const std::optional<ModelShape>& shape, std::int64_t parent) {
    if (!shape || !seen_.insert(*shape).second) return false;
    result_.candidates.push_back({std::ssize(result_.candidates), *shape, *options_.cost(*shape), parent, {}});
    return true;
  }

  void draw() {
    const std::optional<double> cost = options_.cost(space_.base());
    has_base_ = cost && *cost <= options_.budget && add(space_.base(), -1);
    SplitMix random(options_.seed);
    for (int tries = 0; tries < kDraws && std::ssize(result_.candidates) < options_.candidates;)
      tries = add(space_.draw(random, options_.cost, options_.budget), -1) ? 0 : tries + 1;
  }

  // False: it was asked to stop.
  bool train(const std::vector<std::int64_t>& who, std::int64_t steps) {
    std::vector<const Candidate*> candidates;
    for (const std::int64_t id : who) candidates.push_back(&at(id));
    const auto losses = options_.train(candidates, steps);
    for (std::size_t i = 0; i < who.size(); ++i) {
      if (!losses[i]) {
        result_.stopped = true;
        continue;
      }
      at(who[i]).loss[steps] = *losses[i];
      if (options_.trained) options_.trained(at(who[i]), steps);
    }
    return !result_.stopped;
  }

  // A loss that is not finite is the worst.
  void sort_by_loss(std::vector<std::int64_t>& who, std::int64_t steps) {
    const auto loss = [&](std::int64_t id) {
      const double l = at(id).loss.at(steps);
      return std::isfinite(l) ? l : std::numeric_limits<double>::infinity();
    };
    std::stable_sort(who.begin(), who.end(), [&](std::int64_t a, std::int64_t b) { return loss(a) < loss(b); });
  }

  void halve() {
    std::vector<std::int64_t> alive;
    for (const Candidate& c : result_.candidates) alive.push_back(c.id);
    for (std::int64_t rung = options_.rungs - 1; rung >= 0; --rung) {
      std::int64_t steps = options_.steps;
      for (std::int64_t i = 0; i < rung; ++i) steps /= options_.keep;
      if (steps < 1) continue;
      if (!train(alive, steps) || rung == 0) return;
      sort_by_loss(alive, steps);
      alive.resize(std::max<std::size_t>(1, alive.size() / static_cast<std::size_t>(options_.keep)));
      if (has_base_ && std::find(alive.begin(), alive.end(), 0) == alive.end()) alive.push_back(0);
    }
  }

  void evolve(std::int64_t generation) {
    SplitMix random(options_.seed * 1000003 + static_cast<std::uint64_t>(generation) + 1);
    std::vector<std::int64_t> parents;
    for (const Candidate& c : result_.candidates)
      if (c.loss.contains(options_.steps)) parents.push_back(c.id);
    if (parents.empty()) return;
    sort_by_loss(parents, options_.steps);
    constexpr std::size_t kParents = 2;
    if (parents.size() > kParents) parents.resize(kParents);
    std::vector<std::int64_t> children;
    for (int tries = 0; tries < kDraws && std::ssize(children) < options_.children; ++tries) {
      const std::int64_t parent = parents[random.next() % parents.size()];
      if (add(space_.vary(at(parent).shape, random, options_.cost, options_.budget), parent))
        children.push_back(result_.candidates.back().id);
    }
    train(children, options_.steps);
  }

  const ShapeSpace& space_;
  const SearchOptions& options_;
  SearchResult result_;
  bool has_base_ = false;
  std::set<ModelShape> seen_;
};

}  // namespace

Budget parse_budget(const std::string& text, const char* option) {
  constexpr std::array<std::pair<const char*, Kind>, 4> kKinds = {
      {{"params", Kind::parameters}, {"bytes", Kind::bytes}, {"step", Kind::step}, {"decode", Kind::decode}}};
  const std::size_t equals = text.find('=');
  for (const auto& [name, kind] : kKinds) {
    if (text.substr(0, equals) != name) continue;
    if (equals == std::string::npos) return {kind, 0};
    const std::string value = text.substr(equals + 1);
    double most = 0;
    if (kind == Kind::bytes) {
      most = static_cast<double>(parse_bytes(value).value_or(0));
    } else {
      char* end = nullptr;
      most = std::strtod(value.c_str(), &end);
      const std::string unit(end);
      if (kind == Kind::parameters)
        most *= unit == "B" ? 1e9 : unit == "M" ? 1e6 : unit == "k" || unit == "K" ? 1e3 : unit.empty() ? 1 : 0;
      else
        most *= unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : unit == "s" ? 1 : 0;
    }
    if (!(most > 0) || !std::isfinite(most))
      refuse("{} {}: \"{}\" is no such amount; examples are params=2M, bytes=8MiB, step=20ms, decode=1ms", option, text,
             value);
    return {kind, most};
  }
  refuse(
      "{} {}: expected params, bytes, step or decode, with an amount such as params=2M or step=20ms, or without: as "
      "much as the configuration's own shape",
      option, text);
}

std::string cost_text(Kind kind, double cost) {
  switch (kind) {
    case Kind::parameters: return fmt::format("{} params", format_count(static_cast<std::uint64_t>(cost)));
    case Kind::bytes: return format_bytes(static_cast<std::uint64_t>(cost));
    case Kind::step:
    case Kind::decode: break;
  }
  return fmt::format("{:.3f} ms", 1e3 * cost);
}

SearchResult search(const ShapeSpace& space, const SearchOptions& options) { return Search(space, options).run(); }

std::string picture(const SearchResult& result, Kind kind, int width, int height) {
  std::int64_t most = 0;
  for (const Candidate& c : result.candidates)
    if (!c.loss.empty()) most = std::max(most, c.loss.rbegin()->first);
  std::vector<const Candidate*> shown;
  for (const Candidate& c : result.candidates)
    if (c.loss.contains(most) && std::isfinite(c.loss.at(most))) shown.push_back(&c);
  if (shown.empty()) return "";
  // Of two in one place, the best is seen, then the configuration's own.
  const auto rank = [&](const Candidate* c) { return c->id == result.best ? 2 : c->id == result.base ? 1 : 0; };
  std::stable_sort(shown.begin(), shown.end(),
                   [&](const Candidate* a, const Candidate* b) { return rank(a) < rank(b); });
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end(), [&](const Candidate* a, const Candidate* b) {
    return a->loss.at(most) < b->loss.at(most);
  });
  const auto [cheap, dear] = std::minmax_element(
      shown.begin(), shown.end(), [](const Candidate* a, const Candidate* b) { return a->cost < b->cost; });
  const double least = (*low)->loss.at(most), worst = (*high)->loss.at(most);
  std::vector<std::string> rows(static_cast<std::size_t>(height), std::string(static_cast<std::size_t>(width), ' '));
  const auto place = [](double x, double from, double to, int cells) {
    return to > from ? std::lround((x - from) / (to - from) * (cells - 1)) : 0L;
  };
  for (const Candidate* c : shown) {
    std::string& row = rows[static_cast<std::size_t>(place(c->loss.at(most), least, worst, height))];
    const std::string mark = c->id == result.best   ? fmt::format("*{}", c->id)
                             : c->id == result.base ? "o"
                                                    : fmt::format("{}", c->id);
    const auto at = std::min<std::size_t>(
        static_cast<std::size_t>(place(c->cost, (*cheap)->cost, (*dear)->cost, width)), row.size() - mark.size());
    row.replace(at, mark.size(), mark);
  }
  std::string text = fmt::format("loss after {} steps\n", most);
  for (std::size_t r = rows.size(); r-- > 0;) {
    while (!rows[r].empty() && rows[r].back() == ' ') rows[r].pop_back();
    const double loss = least + (worst - least) * static_cast<double>(r) / (height - 1);
    text += fmt::format("{:8.4f} │{}\n", loss, rows[r]);
  }
  const std::string right = cost_text(kind, (*dear)->cost);
  std::string line;
  for (int i = 0; i < width; ++i) line += "─";
  text += fmt::format("         └{}\n          {:<{}}{}\n", line, cost_text(kind, (*cheap)->cost),
                      std::max<std::size_t>(1, static_cast<std::size_t>(width) - right.size()), right);
  return text + "          candidates by number, * the best, o the configuration's own shape\n";
}

}  // namespace trireme::compress
