#include "trireme/cli/published.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "trireme/cli/bench.h"
#include "trireme/cli/output.h"
#include "trireme/cli/work_progress.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"
#include "trireme/train/plan_search.h"

namespace trireme::cli {
namespace {

// One line of the table, by column.
struct Row {
  std::map<std::string, std::string> cells;
  std::string place;  // file and line

  const std::string& text(const std::string& column) const {
    const auto found = cells.find(column);
    if (found == cells.end()) refuse("{}: there is no column \"{}\"", place, column);
    return found->second;
  }
  double number(const std::string& column) const {
    try {
      std::size_t used = 0;
      const double value = std::stod(text(column), &used);
      if (used == text(column).size()) return value;
    } catch (const std::logic_error&) {  // said below
    }
    refuse("{}: {} = \"{}\" is no number", place, column, text(column));
  }
  std::int64_t integer(const std::string& column) const { return static_cast<std::int64_t>(number(column)); }
};

// Fields may be in quotes.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  return fields;
}

std::vector<Row> read_rows(const std::string& file) {
  std::ifstream in(file);
  if (!in) refuse("--published {}: cannot be read", file);
  std::vector<Row> rows;
  std::vector<std::string> columns;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (trim(line).empty() || line.front() == '#') continue;
    const std::vector<std::string> fields = fields_of(line);
    if (columns.empty()) {
      columns = fields;
      continue;
    }
    Row row;
    row.place = fmt::format("{}:{}", file, number);
    if (fields.size() != columns.size())
      refuse("{}: {} fields, and the first line names {} columns", row.place, fields.size(), columns.size());
    for (std::size_t i = 0; i < fields.size(); ++i) row.cells[columns[i]] = std::string(trim(fields[i]));
    rows.push_back(row);
  }
  if (rows.empty()) refuse("--published {}: there is no row", file);
  return rows;
}

// "A100-80G/…" → a100: what connects the nodes is the built-in cluster's.
cluster::Cluster cluster_of(const Row& row) {
  std::string name = row.text("hardware").substr(0, row.text("hardware").find_first_of("-/"));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  cluster::Cluster cluster = cluster::load_cluster(name);
  // "unfused scores", "flash", "flash?", or a generation by its name.
  const std::string& software = row.text("attention");
  cluster.generation = software.starts_with("unfused") ? "unfused" : software;
  if (!cluster.software.contains(cluster.generation)) cluster.generation = "flash";
  return cluster;
}

std::vector<std::string> settings_of(const Row& row) {
  const bool llama = row.text("family").starts_with("llama");
  if (!llama && !row.text("family").starts_with("gpt"))
    refuse("{}: family = \"{}\": expected gpt or llama", row.place, row.text("family"));
  if (row.integer("cp") != 1) refuse("{}: cp = {}: context parallelism is not built yet", row.place, row.integer("cp"));
  const auto zero = [&]() -> int {
    const std::string& text = row.text("zero/dist_opt");
    if (text == "none") return 0;
    return text.starts_with("zero") && text.size() == 5 ? text.back() - '0' : 1;
  };
  std::vector<std::string> settings = {
      fmt::format("model.family={}", llama ? "llama" : "gpt2"),
      "model.layers=" + row.text("layers"),
      "model.width=" + row.text("hidden"),
      "model.heads=" + row.text("heads"),
      "model.ffn=" + row.text("ffn"),
      "model.vocab=" + row.text("vocab"),
      "model.context=" + row.text("seq"),
      fmt::format("model.tie_embeddings={}", row.text("tied") == "yes"),
      fmt::format("parallel.mesh=pp={},dp={},tp={}", row.integer("pp"), row.integer("dp"), row.integer("tp")),
      fmt::format("parallel.zero={}", zero()),
      fmt::format("parallel.sequence={}", row.text("seq_parallel") == "yes"),
      "train.batch=" + row.text("global_batch"),
      "train.micro_batch=" + row.text("micro_batch"),
      "train.precision=" + row.text("precision"),
      "memory.remat=" + row.text("recompute")};
  if (llama) settings.push_back("model.kv_heads=" + row.text("kv_heads"));
  if (row.integer("virtual_pp") > 1)
    settings.push_back(fmt::format("parallel.pipeline=interleaved:{}", row.integer("virtual_pp")));
  return settings;
}

// The step time in the row's own metric.
double metric_of(const Row& row, double seconds) {
  const double b = row.number("global_batch"), s = row.number("seq"), l = row.number("layers"),
               h = row.number("hidden"), v = row.number("vocab"), gpus = row.number("gpus");
  const std::string& metric = row.text("published_metric");
  const std::string& unit = row.text("unit");
  if (metric == "iter_time") return seconds;
  // What the model needs, and what is computed with all activations recomputed.
  const double model = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
  const double all = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  if (metric.starts_with("HFU")) return all / seconds / gpus / 1e12;
  if (metric == "MFU") return 100 * model / seconds / gpus / cluster_of(row).device.flops.at("bf16");
  if (metric == "throughput" && unit.starts_with("samples")) return b / seconds / gpus;
  if (metric == "throughput" && unit.starts_with("tok")) return b * s / seconds / gpus;
  refuse("{}: published_metric = \"{}\" in {}: expected iter_time, HFU_flops, MFU or throughput", row.place, metric,
         unit);
}

struct Predicted {
  std::string name;
  double predicted = 0;
  double published = 0;
  std::string unit;
  std::string refused;  // why it cannot be compiled
  bool fits = true;
  double step = 0;     // seconds, predicted
  double planned = 0;  // seconds of the plan that the search finds for the same model and devices; 0: not asked
  std::string plan;    // that plan
  double data = 0;     // seconds of plain data parallelism; 0: it does not fit or divide the batch
  simulator::TimeByKind kinds;

  // In the unit of the row.
  double error() const { return predicted / published - 1; }
  // Behind what hands would have run, of what fits. The search times large models by shorter ones of the same plan.
  bool behind() const {
    constexpr double kRounding = 1.005;
    return (fits && planned > kRounding * step) || (data > 0 && planned > kRounding * data);
  }
};

// What the planner would have done with the same model on the same devices.
void plan_for(const Context& context, const train::Config& config, const cluster::Cluster& cluster, int ranks,
              Predicted& p) {
  train::PlanRequest request;
  request.cluster = cluster;
  request.ranks = ranks;
  const train::PlanSearch search(config, *context.registry, request);
  const planner::SearchResult found = search.run();
  p.planned = found.best.front().seconds;
  p.plan = planner::describe(found.best.front().candidate);
  // Plain data parallelism, with the most rows at once that fit.
  planner::Candidate data{.pp = 1, .dp = ranks};
  for (std::int64_t rows = 1; config.train.batch % (ranks * rows) == 0; rows *= 2) {
    data.layer.micro_batch = rows;
    const planner::Scored s = search.problem().score(data);
    if (!s.feasible()) break;
    p.data = p.data == 0 ? s.seconds : std::min(p.data, s.seconds);
  }
}

Predicted predict(const Context& context, const Row& row, bool planned) {
  Predicted p{.name = row.text("name"),
              .published = row.number("value"),
              .unit = row.text("unit"),
              .refused = "",
              .plan = "",
              .kinds = {}};
  try {
    const std::vector<std::string> settings = settings_of(row);
    const train::Config config = train::parse_config("", row.place, settings, context.registry->models);
    const train::OnCluster on = train::compile_on(config, *context.registry, cluster_of(row));
    const simulator::Simulation s = simulator::simulate(on.compiled, on.cluster);
    p.predicted = metric_of(row, s.step_seconds);
    p.fits = s.fits;
    p.kinds = s.mean;
    p.step = s.step_seconds;
    if (planned) plan_for(context, config, cluster_of(row), on.compiled.ranks(), p);
  } catch (const Error& e) {
    p.refused = e.message();
  }
  return p;
}

std::string table(const std::vector<Predicted>& rows) {
  std::string out = fmt::format("{:<26}{:>12}{:>12}{:>9}  {:<15}{:>8}{:>9}{:>8}{:>9}\n", "run", "predicted",
                                "published", "error", "unit", "compute", "exposed", "bubble", "waiting");
  std::vector<double> errors;
  for (const Predicted& p : rows) {
    if (!p.refused.empty()) {
      out += fmt::format("{:<26}not simulated: {}\n", p.name, p.refused);
      continue;
    }
    errors.push_back(std::abs(p.error()));
    const auto share = [&](double seconds) { return fmt::format("{:.1f}%", 100 * seconds / p.kinds.total()); };
    out +=
        fmt::format("{:<26}{:>12.4g}{:>12.4g}{:>+8.1f}%  {:<15}{:>8}{:>9}{:>8}{:>9}{}\n", p.name, p.predicted,
                    p.published, 100 * p.error(), p.unit, share(p.kinds.compute), share(p.kinds.exposed_communication),
                    share(p.kinds.bubble), share(p.kinds.waiting), p.fits ? "" : "  plan exceeds the memory");
    if (p.planned > 0)
      out += fmt::format("{:<26}{:>12.4g}{:>12.4g}{:>8.2f}×  {}; data parallelism {}{}\n", "  planned, s", p.planned,
                         p.step, p.step / p.planned, p.plan,
                         p.data > 0 ? fmt::format("{:.4g}", p.data) : "does not fit", p.behind() ? "  BEHIND" : "");
  }
  if (errors.empty()) return out;
  out += fmt::format("\nerror: {:.1f}% in the median, {:.1f}% at most, over {} of {} runs\n", 100 * median(errors),
                     100 * *std::max_element(errors.begin(), errors.end()), errors.size(), rows.size());
  const auto planned = std::count_if(rows.begin(), rows.end(), [](const Predicted& p) { return p.planned > 0; });
  const auto behind =
      std::count_if(rows.begin(), rows.end(), [](const Predicted& p) { return p.planned > 0 && p.behind(); });
  if (planned > 0)
    out += fmt::format("planned: {} of {} plans are behind the published ones that fit, or behind data parallelism\n",
                       behind, planned);
  return out;
}

}  // namespace

int simulate_published(const Context& context, const std::string& file, bool json, bool planned) {
  const std::vector<Row> rows = read_rows(file);
  std::vector<Predicted> results;
  WorkProgress progress;
  for (const Row& row : rows) {
    progress.count("simulating " + row.text("name"), results.size(), rows.size());
    results.push_back(predict(context, row, planned));
  }
  progress.finish();
  if (!json) {
    say(stdout, table(results));
    return 0;
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Predicted& p : results) {
    nlohmann::ordered_json o = {{"name", p.name}};
    if (p.refused.empty()) {
      o["predicted"] = p.predicted;
      o["published"] = p.published;
      o["error"] = p.error();
      o["unit"] = p.unit;
      o["fits"] = p.fits;
      o["step_ms"] = 1e3 * p.step;
      if (p.planned > 0) {
        o["planned_step_ms"] = 1e3 * p.planned;
        o["planned"] = p.plan;
        o["data_parallel_step_ms"] = 1e3 * p.data;
        o["behind"] = p.behind();
      }
    } else {
      o["published"] = p.published;
      o["refused"] = p.refused;
    }
    all.push_back(o);
  }
  say(stdout, all.dump() + "\n");
  return 0;
}

}  // namespace trireme::cli
