#include "trireme/compress/search.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/graphs.h"
#include "trireme/train/on_cluster.h"

namespace trireme::compress {
namespace {

namespace fs = std::filesystem;
using Kind = Budget::Kind;

// Of candidates that are within the budget, those are drawn that use at least this share of it.
constexpr double kLeast = 0.8;
constexpr int kDraws = 4000;

cluster::Cluster own_cluster() {
  const std::string file = train::own_cluster_file();
  if (!fs::exists(file))
    refuse("--budget: this machine is not measured yet: `trireme calibrate` does it ({} is not there)", file);
  return cluster::load_cluster(file);
}

train::Config with_shape(train::Config config, const Candidate& c) {
  config.model.layers = c.layers;
  config.model.width = c.width;
  config.model.heads = c.heads;
  config.model.kv_heads = 0;
  config.model.head_dim = 0;
  config.model.ffn = c.ffn;
  return config;
}

class Search {
 public:
  Search(const SearchOptions& options, const train::Registry& registry)
      : options_(options), registry_(registry), file_(options.folder / "search.jsonl") {}

  SearchResult run() {
    fs::create_directories(options_.folder);
    check_same_search();
    read_losses();
    draw();
    halve();
    for (std::int64_t g = 0; g < options_.generations && !result_.stopped; ++g) evolve(g);
    for (const Candidate& c : result_.candidates) {
      const auto last = c.loss.find(options_.base.train.steps);
      if (last == c.loss.end()) continue;
      if (c.id == 0 && has_base_) result_.base = 0;
      if (result_.best < 0 || last->second < loss_of(result_.best)) result_.best = c.id;
    }
    return result_;
  }

 private:
  double loss_of(std::int64_t id) const {
    return result_.candidates[static_cast<std::size_t>(id)].loss.at(options_.base.train.steps);
  }

  // What is read again belongs to the same question.
  void check_same_search() const {
    const nlohmann::json asked = {
        {"keep", options_.keep},
        {"rungs", options_.rungs},
        {"candidates", options_.candidates},
        {"seed", options_.seed},
        {"budget", fmt::format("{} {}", static_cast<int>(options_.budget.kind), options_.budget.most)},
        {"steps", options_.base.train.steps}};
    const fs::path file = options_.folder / "search.json";
    if (fs::exists(file)) {
      std::ifstream in(file);
      const auto before = nlohmann::json::parse(in, nullptr, false);
      for (const auto& [key, value] : asked.items())
        if (!before.is_object() || before.value(key, nlohmann::json()) != value)
          refuse("--out {} holds a search with another --{} ({}); give the same, or another folder",
                 options_.folder.string(), key, before.value(key, nlohmann::json()).dump());
      return;
    }
    std::ofstream(file) << asked.dump(1) << "\n";
  }

  // A line that was cut off is as if it had never been begun.
  void read_losses() {
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) {
      const auto o = nlohmann::json::parse(line, nullptr, false);
      if (!o.is_object() || !o.contains("loss")) continue;
      known_[{o.value("id", std::int64_t{-1}), o.value("steps", std::int64_t{0})}] = o.value("loss", 0.0);
    }
  }

  bool within(Candidate& c) {
    const auto key = std::array{c.layers, c.width, c.heads, c.ffn};
    if (seen_.contains(key)) return false;
    try {
      c.cost = cost_of(with_shape(options_.base, c), options_.budget.kind, registry_);
    } catch (const Error& e) {
      if (e.kind() != Error::Kind::request) throw;
      return false;
    }
    if (c.cost > options_.budget.most) return false;
    seen_.insert(key);
    return true;
  }

  void add(Candidate c) {
    c.id = std::ssize(result_.candidates);
    result_.candidates.push_back(std::move(c));
  }

  void draw() {
    const models::ModelConfig& m = options_.base.model;
    Candidate base{.layers = m.layers, .width = m.width, .heads = m.heads, .ffn = m.ffn};
    has_base_ = within(base);
    if (has_base_) add(base);
    SplitMix random(options_.seed);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(random.unit() * static_cast<double>(high - low + 1));
    };
    for (int i = 0; i < kDraws && std::ssize(result_.candidates) < options_.candidates; ++i) {
      Candidate c;
      c.layers = pick(1, std::max<std::int64_t>(3 * m.layers, 4));
      const std::int64_t head_dim = std::int64_t{16} << pick(0, 2);
      c.heads = pick(1, std::max<std::int64_t>(1, 3 * m.width / head_dim));
      c.width = c.heads * head_dim;
      c.ffn = c.width * pick(2, 10) / 2;
      if (within(c) && c.cost >= kLeast * options_.budget.most) add(c);
    }
    if (result_.candidates.empty())
      refuse("--budget: no shape was found within it; that of the configuration costs {}",
             cost_text(options_.budget.kind, cost_of(options_.base, options_.budget.kind, registry_)));
  }

  // Trained for so many steps in all; nothing: it was asked to stop.
  std::optional<double> train(Candidate& c, std::int64_t steps) {
    if (const auto found = known_.find({c.id, steps}); found != known_.end()) return c.loss[steps] = found->second;
    train::Config config = with_shape(options_.base, c);
    config.output.dir = (options_.folder / fmt::format("candidate-{:03}", c.id)).string();
    config.train.decay_steps = options_.base.train.steps;
    config.train.steps = steps;
    train::check(config, registry_.models);
    train::TrainerOptions o;
    o.mode = train::holds_run(config.output.dir) ? train::RunMode::resume : train::RunMode::fresh;
    o.command = "search";
    o.request = options_.request;
    o.log = options_.log;
    o.on_step = [&](const train::Metrics& m) {
      if (options_.on_step) options_.on_step(c, m.step);
    };
    train::Trainer trainer(config, registry_, o);
    trainer.start();
    const std::int64_t first = trainer.first_step();
    const train::Outcome outcome = trainer.run();
    result_.trained_steps += outcome.steps - first;
    if (outcome.stopped || !outcome.evaluation) {
      result_.stopped = outcome.stopped;
      if (!outcome.stopped) refuse("a search compares held-out losses: set data.holdout or data.eval");
      return std::nullopt;
    }
    nlohmann::ordered_json line = {{"id", c.id},         {"steps", steps},   {"loss", outcome.evaluation->loss},
                                   {"layers", c.layers}, {"width", c.width}, {"heads", c.heads},
                                   {"ffn", c.ffn},       {"cost", c.cost},   {"parent", c.parent}};
    std::ofstream(file_, std::ios::app) << line.dump() << "\n" << std::flush;
    return c.loss[steps] = outcome.evaluation->loss;
  }

  void say(const Candidate& c, std::int64_t steps) const {
    if (!options_.say) return;
    options_.say(fmt::format("{:>4}  {:>3}×{:<5} {:>3} heads  ffn {:>5}  {:>12}  {:>7} steps  loss {:.4f}{}", c.id,
                             c.layers, c.width, c.heads, c.ffn, cost_text(options_.budget.kind, c.cost), steps,
                             c.loss.at(steps), c.parent < 0 ? "" : fmt::format("  from {}", c.parent)));
  }

  void halve() {
    std::vector<std::int64_t> alive;
    for (const Candidate& c : result_.candidates) alive.push_back(c.id);
    for (std::int64_t rung = options_.rungs - 1; rung >= 0; --rung) {
      std::int64_t steps = options_.base.train.steps;
      for (std::int64_t i = 0; i < rung; ++i) steps /= options_.keep;
      steps = std::max<std::int64_t>(steps, 1);
      for (const std::int64_t id : alive) {
        Candidate& c = result_.candidates[static_cast<std::size_t>(id)];
        if (!train(c, steps)) return;
        say(c, steps);
      }
      if (rung == 0) break;
      std::stable_sort(alive.begin(), alive.end(), [&](std::int64_t a, std::int64_t b) {
        return result_.candidates[static_cast<std::size_t>(a)].loss.at(steps) <
               result_.candidates[static_cast<std::size_t>(b)].loss.at(steps);
      });
      const std::size_t left = std::max<std::size_t>(1, alive.size() / static_cast<std::size_t>(options_.keep));
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(left), alive.end());
      // The shape to beat goes all the way.
      if (has_base_ && std::find(alive.begin(), alive.end(), 0) == alive.end()) alive.push_back(0);
    }
  }

  void evolve(std::int64_t generation) {
    SplitMix random(options_.seed * 1000003 + static_cast<std::uint64_t>(generation) + 1);
    std::vector<std::int64_t> parents;
    for (const Candidate& c : result_.candidates)
      if (c.loss.contains(options_.base.train.steps)) parents.push_back(c.id);
    std::stable_sort(parents.begin(), parents.end(),
                     [&](std::int64_t a, std::int64_t b) { return loss_of(a) < loss_of(b); });
    if (parents.empty()) return;
    if (parents.size() > 2) parents.erase(parents.begin() + 2, parents.end());
    std::int64_t born = 0;
    for (int i = 0; i < kDraws && born < options_.children; ++i) {
      const Candidate& parent = result_.candidates[static_cast<std::size_t>(parents[random.next() % parents.size()])];
      Candidate child{.layers = parent.layers, .width = parent.width, .heads = parent.heads, .ffn = parent.ffn};
      child.parent = parent.id;
      const std::int64_t head_dim = child.width / child.heads;
      const auto up = [&] { return random.unit() < 0.5 ? -1 : 1; };
      // Two changes at once, so that what one of them saves another can use.
      for (int change = 0; change < 2; ++change) switch (random.next() % 3) {
          case 0: child.layers = std::max<std::int64_t>(1, child.layers + up()); break;
          case 1:
            child.heads = std::max<std::int64_t>(1, child.heads + up());
            child.width = child.heads * head_dim;
            break;
          default: child.ffn = std::max<std::int64_t>(16, child.ffn + up() * child.width / 2); break;
        }
      if (!within(child) || child.cost < kLeast * options_.budget.most) continue;
      add(child);
      ++born;
      Candidate& own = result_.candidates.back();
      if (!train(own, options_.base.train.steps)) return;
      say(own, options_.base.train.steps);
    }
  }

  const SearchOptions& options_;
  const train::Registry& registry_;
  fs::path file_;
  SearchResult result_;
  bool has_base_ = false;
  std::map<std::pair<std::int64_t, std::int64_t>, double> known_;  // loss by candidate and steps
  std::set<std::array<std::int64_t, 4>> seen_;
};

}  // namespace

Budget parse_budget(const std::string& text) {
  constexpr std::array<std::pair<const char*, Kind>, 4> kKinds = {
      {{"params", Kind::parameters}, {"bytes", Kind::bytes}, {"step", Kind::step}, {"decode", Kind::decode}}};
  const std::size_t equals = text.find('=');
  const std::string word = text.substr(0, equals);
  for (const auto& [name, kind] : kKinds) {
    if (word != name || equals == std::string::npos) continue;
    const std::string value = text.substr(equals + 1);
    double most = 0;
    if (kind == Kind::bytes) {
      most = static_cast<double>(parse_bytes(value).value_or(0));
    } else {
      char* end = nullptr;
      most = std::strtod(value.c_str(), &end);
      const std::string unit(end);
      if (kind == Kind::parameters)
        most *= unit == "M" ? 1e6 : unit == "k" || unit == "K" ? 1e3 : unit.empty() ? 1 : 0;
      else
        most *= unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : unit == "s" ? 1 : 0;
    }
    if (!(most > 0))
      refuse("--budget {}: \"{}\" is no such amount; examples are params=2M, bytes=8MiB, step=20ms", text, value);
    return {kind, most};
  }
  refuse("--budget {}: expected params=, bytes=, step= or decode= and an amount, such as params=2M or step=20ms", text);
}

std::string cost_text(Kind kind, double cost) {
  switch (kind) {
    case Kind::parameters: return fmt::format("{} params", format_count(static_cast<std::uint64_t>(cost)));
    case Kind::bytes: return format_bytes(static_cast<std::uint64_t>(cost));
    case Kind::step:
    case Kind::decode: break;
  }
  return fmt::format("{:.2f} ms", 1e3 * cost);
}

double cost_of(const train::Config& config, Kind kind, const train::Registry& registry) {
  train::Config own = config;
  train::resolve_model(own, own.model.vocab, registry.models);
  train::check(own, registry.models);
  if (kind == Kind::parameters || kind == Kind::bytes) {
    const compiler::Graphs graphs = train::build_graphs(own, registry, {});
    double parameters = 0;
    for (const ir::State& state : graphs.module.states)
      if (state.trained) parameters += static_cast<double>(state.type.elements());
    return kind == Kind::bytes ? 4 * parameters : parameters;
  }
  static const cluster::Cluster cluster = own_cluster();
  train::CompileOptions options;
  options.threads = train::compute_threads(own);
  if (kind == Kind::decode) {
    options.purpose = train::Purpose::generate;
    own.parallel.mesh = "auto";
  }
  train::Compiled compiled = train::compile(own, registry, options);
  if (kind == Kind::decode) compiled.steps = {{compiled.prefill.front().program, 0}};
  return simulator::simulate(compiled, cluster).step_seconds;
}

SearchResult search(const SearchOptions& options, const train::Registry& registry) {
  return Search(options, registry).run();
}

std::string picture(const SearchResult& result, Kind kind, int width, int height) {
  std::vector<std::array<double, 2>> points;
  double low = 1e300, high = -1e300, cheap = 1e300, dear = -1e300;
  for (const Candidate& c : result.candidates) {
    if (c.loss.empty()) continue;
    points.push_back({c.cost, c.loss.rbegin()->second});
    low = std::min(low, points.back()[1]);
    high = std::max(high, points.back()[1]);
    cheap = std::min(cheap, c.cost);
    dear = std::max(dear, c.cost);
  }
  if (points.empty()) return "";
  std::vector<std::string> rows(static_cast<std::size_t>(height), std::string(static_cast<std::size_t>(width), ' '));
  std::size_t i = 0;
  for (const Candidate& c : result.candidates) {
    if (c.loss.empty()) continue;
    const auto& [cost, loss] = points[i++];
    const auto place = [](double x, double from, double to, int most) {
      return static_cast<std::size_t>(to > from ? std::lround((x - from) / (to - from) * (most - 1)) : 0);
    };
    char& at = rows[place(loss, low, high, height)][place(cost, cheap, dear, width)];
    at = c.id == result.best ? '*' : c.id == result.base ? 'o' : c.loss.size() > 1 ? '+' : '.';
  }
  std::string text;
  for (std::size_t r = rows.size(); r-- > 0;)
    text +=
        fmt::format("{:8.4f} │{}\n", low + (high - low) * static_cast<double>(r) / std::max(1, height - 1), rows[r]);
  text += fmt::format("{:>8} └{}\n{:10}{:<{}}{}\n", "loss", std::string(static_cast<std::size_t>(width), '-'), "",
                      cost_text(kind, cheap), width - 12, cost_text(kind, dear));
  text += "          * the best, o the configuration's own shape, + went on, . was dropped\n";
  return text;
}

}  // namespace trireme::compress
