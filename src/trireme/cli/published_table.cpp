#include "trireme/cli/published_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// One line of the table, by column.
struct Row {
  std::map<std::string, std::string> cells;
  std::string place;  // file and line

  const std::string& text(const std::string& column) const {
    const auto found = cells.find(column);
    if (found != cells.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [name, cell] : cells) names.push_back(name);
    refuse("{}: there is no column \"{}\"{}", place, column, nearest_text(column, names));
  }
  [[noreturn]] void wrong(const std::string& column, const std::string& expected) const {
    refuse("{}: {} = \"{}\": expected {}", place, column, text(column), expected);
  }
  std::int64_t count(const std::string& column) const {
    constexpr std::int64_t kMax = std::int64_t{1} << 40;
    const std::string& cell = text(column);
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || rest != cell.data() + cell.size() || value < 1 || value > kMax)
      wrong(column, "a whole number of at least 1");
    return value;
  }
  double positive(const std::string& column) const {
    const std::string& cell = text(column);
    double value = 0;
    const auto [rest, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || rest != cell.data() + cell.size() || !std::isfinite(value) || !(value > 0))
      wrong(column, "a number above 0");
    return value;
  }
  // What a word of the cell stands for, in whatever case; `shown` are those that a refusal names.
  template <class T>
  T word(const std::string& column, const std::vector<std::pair<const char*, T>>& words,
         const std::vector<std::string>& shown) const {
    const std::string cell = lower(text(column));
    for (const auto& [name, value] : words)
      if (cell == name) return value;
    wrong(column, fmt::format("{}{}", fmt::join(shown, ", "), nearest_text(cell, shown)));
  }
  bool yes(const std::string& column) const {
    return word<bool>(
        column,
        {{"yes", true}, {"no", false}, {"true", true}, {"false", false}, {"1", true}, {"0", false}, {"none", false}},
        {"yes", "no"});
  }
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
      for (const std::string& field : fields) columns.emplace_back(trim(field));
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

// "A100-80G/…" → a100: what connects the nodes is the built-in cluster's. Sizes of memory are in 10⁹ bytes.
cluster::Cluster cluster_of(const Row& row) {
  const std::string& hardware = row.text("hardware");
  std::string device = lower(hardware.substr(0, hardware.find('/')));
  std::replace(device.begin(), device.end(), ' ', '-');
  const std::string name = device.substr(0, device.find('-'));
  std::vector<std::string> known;
  for (const cluster::Builtin& builtin : cluster::builtin_clusters()) known.emplace_back(builtin.name);
  if (std::find(known.begin(), known.end(), name) == known.end())
    row.wrong("hardware", fmt::format("a device out of {}, as in \"A100-80G/what connects its nodes\"{}",
                                      fmt::join(known, ", "), nearest_text(name, known)));
  cluster::Cluster cluster = cluster::load_cluster(name);
  const double memory = std::round(cluster.device.memory / 1e9);
  const std::string size = fmt::format("{:.0f}g", memory);
  const std::vector<std::string> described = {name, size, size + "b", "sxm", "sxm4", "sxm5", "hgx", "dgx"};
  for (const std::string& part : split(device, '-'))
    if (std::find(described.begin(), described.end(), part) == described.end())
      row.wrong("hardware", fmt::format("what is described of {}: {} with {:.0f} GB; the nearest is '{}-{:.0f}G'", name,
                                        cluster.device.name, memory, hardware.substr(0, name.size()), memory));
  // "unfused scores", "flash", or a generation by its name; with "?" where the publication does not say.
  std::string software = lower(row.text("attention"));
  if (software.ends_with('?')) software.pop_back();
  std::vector<std::string> generations;
  for (const auto& [generation, what] : cluster.software) generations.push_back(generation);
  if (software.starts_with("unfused ")) software = "unfused";
  if (software == "flashattention" || software == "flash attention") software = "flash";
  if (!cluster.software.contains(software))
    row.wrong("attention", fmt::format("{}{}", fmt::join(generations, ", "), nearest_text(software, generations)));
  cluster.generation = software;
  return cluster;
}

int zero_of(const Row& row) {
  return row.word<int>("zero/dist_opt",
                       {{"none", 0},         {"no", 0},       {"false", 0},  {"0", 0},      {"zero0", 0},
                        {"zero-0", 0},       {"zero1", 1},    {"zero-1", 1}, {"1", 1},      {"yes", 1},
                        {"true", 1},         {"dist_opt", 1}, {"zero2", 2},  {"zero-2", 2}, {"2", 2},
                        {"zero3", 3},        {"zero-3", 3},   {"3", 3},      {"fsdp", 3},   {"full_shard", 3},
                        {"shard_grad_op", 2}},
                       {"none", "zero1", "zero2", "zero3", "dist_opt", "fsdp"});
}

std::vector<std::string> settings_of(const Row& row) {
  const std::string family = lower(row.text("family"));
  const bool llama = family.starts_with("llama");
  if (!llama && !family.starts_with("gpt"))
    row.wrong("family", "gpt or llama" + nearest_text(family, {"gpt", "llama"}));
  const std::int64_t pp = row.count("pp"), dp = row.count("dp"), tp = row.count("tp"), cp = row.count("cp");
  if (!llama && row.count("kv_heads") != row.count("heads"))
    row.wrong("kv_heads", fmt::format("{} of gpt, as it has heads", row.count("heads")));
  if (const std::int64_t gpus = row.count("gpus"); gpus != pp * dp * tp * cp)
    row.wrong("gpus", fmt::format("pp·dp·tp·cp = {}", pp * dp * tp * cp));
  const std::string precision = row.word<std::string>("precision",
                                                      {{"f32", "f32"},
                                                       {"fp32", "f32"},
                                                       {"tf32", "tf32"},
                                                       {"bf16", "bf16"},
                                                       {"fp16", "fp16"},
                                                       {"f16", "fp16"},
                                                       {"fp8", "fp8"}},
                                                      {"f32", "tf32", "bf16", "fp16", "fp8"});
  const std::string recompute = row.word<std::string>(
      "recompute", {{"none", "none"}, {"no", "none"}, {"selective", "selective"}, {"full", "full"}},
      {"none", "selective", "full"});
  std::vector<std::string> settings = {fmt::format("model.family={}", llama ? "llama" : "gpt2"),
                                       fmt::format("model.layers={}", row.count("layers")),
                                       fmt::format("model.width={}", row.count("hidden")),
                                       fmt::format("model.heads={}", row.count("heads")),
                                       fmt::format("model.ffn={}", row.count("ffn")),
                                       fmt::format("model.vocab={}", row.count("vocab")),
                                       fmt::format("model.context={}", row.count("seq")),
                                       fmt::format("model.tie_embeddings={}", row.yes("tied")),
                                       fmt::format("parallel.mesh=pp={},dp={},tp={}", pp, dp, tp),
                                       fmt::format("parallel.zero={}", zero_of(row)),
                                       fmt::format("parallel.sequence={}", row.yes("seq_parallel")),
                                       fmt::format("train.batch={}", row.count("global_batch")),
                                       fmt::format("train.micro_batch={}", row.count("micro_batch")),
                                       "train.precision=" + precision,
                                       "memory.remat=" + recompute};
  if (llama) settings.push_back(fmt::format("model.kv_heads={}", row.count("kv_heads")));
  if (row.count("virtual_pp") > 1)
    settings.push_back(fmt::format("parallel.pipeline=interleaved:{}", row.count("virtual_pp")));
  return settings;
}

PublishedRun::Metric metric_of(const Row& row) {
  using Metric = PublishedRun::Metric;
  const std::string metric = lower(row.text("published_metric"));
  const std::string unit = lower(row.text("unit"));
  const auto expect_unit = [&](std::initializer_list<const char*> units) {
    if (std::none_of(units.begin(), units.end(), [&](const char* u) { return unit == u; }))
      row.wrong("unit", fmt::format("{} of {}{}", fmt::join(units, " or "), row.text("published_metric"),
                                    nearest_text(unit, {units.begin(), units.end()})));
  };
  if (metric == "iter_time") {
    expect_unit({"s"});
    return Metric::seconds;
  }
  if (metric.starts_with("hfu_flops")) {
    expect_unit({"tflop/s/gpu"});
    return Metric::hfu_tflops;
  }
  if (metric == "mfu") {
    expect_unit({"%", "percent"});
    return Metric::mfu_percent;
  }
  if (metric == "throughput") {
    expect_unit({"samples/s/gpu", "tok/s/gpu", "tokens/s/gpu"});
    return unit.starts_with("tok") ? Metric::tokens_per_gpu : Metric::samples_per_gpu;
  }
  const std::vector<std::string> known = {"iter_time", "HFU_flops", "MFU", "throughput"};
  row.wrong("published_metric", fmt::format("{}{}", fmt::join(known, ", "), nearest_text(metric, known)));
}

PublishedRun run_of(const Row& row) {
  PublishedRun run;
  run.place = row.place;
  run.name = row.text("name");
  run.settings = settings_of(row);
  run.cluster = cluster_of(row);
  run.metric = metric_of(row);
  run.value = row.positive("value");
  run.unit = row.text("unit");
  run.context_ranks = row.count("cp");
  for (const auto& [column, number] :
       {std::pair("global_batch", &run.batch), std::pair("seq", &run.context), std::pair("layers", &run.layers),
        std::pair("hidden", &run.width), std::pair("vocab", &run.vocab), std::pair("gpus", &run.gpus)})
    *number = static_cast<double>(row.count(column));
  return run;
}

}  // namespace

std::vector<PublishedRun> read_published(const std::string& file) {
  std::vector<PublishedRun> runs;
  for (const Row& row : read_rows(file)) runs.push_back(run_of(row));
  return runs;
}

// The publications count operations by this formula (arXiv 2104.04473, equation 3), all scores of attention included,
// and so do their figures; Simulation::mfu counts the ops' own.
double in_unit(const PublishedRun& run, double seconds) {
  using Metric = PublishedRun::Metric;
  const double b = run.batch, s = run.context, l = run.layers, h = run.width, v = run.vocab;
  // What the model needs, and what is computed with all activations recomputed.
  const double model = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
  const double all = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  switch (run.metric) {
    case Metric::seconds: break;
    case Metric::hfu_tflops: return all / seconds / run.gpus / 1e12;
    case Metric::mfu_percent: return 100 * model / seconds / run.gpus / run.cluster.device.flops.at("bf16");
    case Metric::samples_per_gpu: return b / seconds / run.gpus;
    case Metric::tokens_per_gpu: return b * s / seconds / run.gpus;
  }
  return seconds;
}

}  // namespace trireme::cli
