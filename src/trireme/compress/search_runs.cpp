#include "trireme/compress/search_runs.h"

#include <nlohmann/json.hpp>

#include <exception>
#include <fstream>
#include <sstream>
#include <thread>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/graphs.h"
#include "trireme/train/on_cluster.h"

namespace trireme::compress {
namespace {

namespace fs = std::filesystem;

const cluster::Cluster& own_cluster() {
  static const cluster::Cluster cluster = [] {
    const std::string file = train::own_cluster_file();
    if (!fs::exists(file))
      refuse("--budget: this machine is not measured yet: `trireme calibrate` does it ({} is not there)", file);
    return cluster::load_cluster(file);
  }();
  return cluster;
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The first line in which two texts differ, as the second has it.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream first(a), second(b);
  std::string one, two;
  while (std::getline(first, one))
    if (!std::getline(second, two) || one != two) return one;
  return b.substr(std::min(a.size(), b.size()));
}

}  // namespace

SearchRuns::SearchRuns(SearchRunsOptions options, const ShapeSpace& space, const train::Registry& registry)
    : options_(std::move(options)), space_(space), registry_(registry) {
  // The first makes the folder; nobody writes losses before all have read them.
  if (rank() == 0) check_question();
  if (options_.world != nullptr) options_.world->barrier();
  if (rank() > 0) check_question();
  read_losses();
  if (options_.world != nullptr) options_.world->barrier();
}

fs::path SearchRuns::folder_of(const Candidate& candidate) const {
  return options_.folder / fmt::format("candidate-{:03}", candidate.id);
}

void SearchRuns::check_question() const {
  const fs::path file = options_.folder / "search.toml";
  if (fs::exists(file)) {
    const std::string before = read_text(file);
    if (before != options_.question)
      refuse("--out {} holds another search, with \"{}\": give the same settings to go on with it, or another folder",
             options_.folder.string(), first_difference(before, options_.question));
    return;
  }
  check_search_folder(options_.folder);
  if (rank() > 0) fail("{} is not there: the processes of a search share its folder", file.string());
  std::error_code error;
  fs::create_directories(options_.folder, error);
  if (error) refuse("--out {}: {}", options_.folder.string(), error.message());
  write_file_atomically(file.string(), options_.question);
}

// A line that was cut off is as if its training had not been finished.
void SearchRuns::read_losses() {
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("search.") || !name.ends_with(".jsonl")) continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      const auto o = parse_json(line);
      if (!o.is_object() || !o.contains("loss") || !o["loss"].is_number()) continue;
      const auto whole = [&](const char* key) { return o.contains(key) && o[key].is_number_integer(); };
      if (whole("id") && whole("steps"))
        known_[{o["id"].get<std::int64_t>(), o["steps"].get<std::int64_t>()}] = o["loss"].get<double>();
    }
  }
}

void SearchRuns::remember(const Candidate& c, std::int64_t steps, double loss) {
  const nlohmann::ordered_json line = {{"id", c.id},
                                       {"steps", steps},
                                       {"loss", loss},
                                       {"layers", c.shape.layers},
                                       {"width", c.shape.width},
                                       {"heads", c.shape.heads},
                                       {"ffn", c.shape.ffn},
                                       {"cost", c.cost},
                                       {"parent", c.parent}};
  const std::lock_guard lock(mutex_);
  known_[{c.id, steps}] = loss;
  // A line of its own, also behind one that was cut off.
  const fs::path file = options_.folder / (rank() == 0 ? "search.jsonl" : fmt::format("search.{}.jsonl", rank()));
  const std::string before = fs::exists(file) ? read_text(file) : "";
  std::ofstream out(file, std::ios::app);
  out << (before.empty() || before.back() == '\n' ? "" : "\n") << line.dump() << "\n" << std::flush;
  if (!out) fail("{}: could not be written; is the disk full?", file.string());
}

std::optional<double> SearchRuns::train_one(const Candidate& c, std::int64_t steps) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find({c.id, steps}); found != known_.end()) return found->second;
  }
  if (stop_) return std::nullopt;
  train::Config config = space_.with(c.shape);
  config.output.dir = folder_of(c).string();
  config.run.clear();  // a run whose configuration this was is not the one that goes on
  // One schedule of the learning rate on all rungs.
  if (config.train.decay_steps == 0) config.train.decay_steps = options_.steps;
  config.train.steps = steps;
  if (config.runtime.threads == 0) {
    const int cores = train::compute_threads(config, options_.processes_here);
    config.runtime.threads = std::max(1, cores / (options_.workers * train::mesh_of(config).ranks()));
  }
  train::check(config, registry_.models);
  train::TrainerOptions o;
  o.mode = train::holds_run(config.output.dir) ? train::RunMode::resume : train::RunMode::fresh;
  o.command = "search";
  o.log = options_.log;
  o.request = [&](const train::Metrics& m) {
    const std::lock_guard lock(mutex_);
    if (!stop_ && options_.request && options_.request(m) == train::Request::stop) stop_ = true;
    return stop_ ? train::Request::stop : train::Request::none;
  };
  o.on_step = [&](const train::Metrics& m) {
    const std::lock_guard lock(mutex_);
    if (options_.on_step) options_.on_step(c, m, steps);
  };
  train::Trainer trainer(config, registry_, o);
  trainer.start();
  const std::int64_t first = trainer.first_step();
  const train::Outcome outcome = trainer.run();
  own_ += outcome.steps - first;
  // Stopped behind its last step, it is evaluated next time.
  if (outcome.steps < steps || (stop_ && !outcome.evaluation)) {
    stop_ = true;
    return std::nullopt;
  }
  if (!outcome.evaluation) refuse("a search compares held-out losses: set data.holdout or data.eval");
  const double loss = outcome.evaluation->loss;
  remember(c, steps, loss);
  return loss;
}

std::vector<std::optional<double>> SearchRuns::train(std::span<const Candidate* const> who, std::int64_t steps) {
  // Those that are not known yet, dealt out in turn.
  std::vector<std::size_t> mine;
  std::vector<std::optional<double>> losses(who.size());
  int turn = 0;
  for (std::size_t i = 0; i < who.size(); ++i) {
    const auto found = known_.find({who[i]->id, steps});
    if (found != known_.end())
      losses[i] = found->second;
    else if (turn++ % processes() == rank())
      mine.push_back(i);
  }
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < mine.size(); i = next++) {
      try {
        losses[mine[i]] = train_one(*who[mine[i]], steps);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure) failure = std::current_exception();
        stop_ = true;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options_.workers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  share(who, steps, mine, losses);
  return losses;
}

void SearchRuns::share(std::span<const Candidate* const> who, std::int64_t steps, std::span<const std::size_t> mine,
                       std::vector<std::optional<double>>& losses) {
  const auto own_steps = static_cast<double>(own_.exchange(0));
  if (options_.world == nullptr) {
    trained_ += static_cast<std::int64_t>(own_steps);
    return;
  }
  // One process has each; behind the marks of what was found, the steps.
  std::vector<double> values(who.size()), found(who.size() + 1);
  for (const std::size_t i : mine)
    if (losses[i]) {
      values[i] = *losses[i];
      found[i] = 1;
    }
  found.back() = own_steps;
  options_.world->all_reduce(std::span(values), comm::Reduce::sum);
  options_.world->all_reduce(std::span(found), comm::Reduce::sum);
  for (std::size_t i = 0; i < who.size(); ++i)
    if (found[i] > 0) {
      losses[i] = values[i];
      known_[{who[i]->id, steps}] = values[i];
    }
  trained_ += static_cast<std::int64_t>(found.back());
}

void check_search_folder(const fs::path& folder) {
  if (!fs::exists(folder) || fs::is_empty(folder)) return;
  if (!fs::exists(folder / "search.toml") && !fs::exists(folder / kDecodeFile))
    refuse("--out {} is a folder that holds something else than a search; name another", folder.string());
}

std::optional<double> cost_of(train::Config config, Budget::Kind kind, const train::Registry& registry,
                              const DecodeCost* decode) {
  const bool time = kind == Budget::Kind::step;
  if (time) own_cluster();
  try {
    train::resolve_model(config, config.model.vocab, registry.models);
    train::check(config, registry.models);
    if (kind == Budget::Kind::decode) {
      TRI_CHECK(decode != nullptr, "what a token takes is not measured");
      return decode->seconds(decode_work(config, registry));
    }
    if (!time) {
      const compiler::Graphs graphs = train::build_graphs(config, registry, {});
      double parameters = 0;
      for (const ir::State& state : graphs.module.states)
        if (state.trained) parameters += static_cast<double>(state.type.elements());
      return kind == Budget::Kind::bytes ? 4 * parameters : parameters;
    }
    train::CompileOptions options;
    options.threads = train::compute_threads(config);
    return simulator::simulate(train::compile(config, registry, options), own_cluster()).step_seconds;
  } catch (const Error& e) {
    if (e.kind() != Error::Kind::request) throw;
    return std::nullopt;
  }
}

}  // namespace trireme::compress
