// How much of the ranks' communication is hidden behind their computation, on any mesh.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "trireme/cli/bench.h"
#include "trireme/cli/rank_timing.h"
#include "trireme/comm/threads/link.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

using Settings = std::vector<std::string>;

struct OverlapArguments {
  std::string config = "quickstart";
  int ranks = 2;
  int steps = 10;
  double share = 0.5;
  bool table = false;
  bool json = false;
};

// Set here, whatever is given.
constexpr std::array<std::string_view, 3> kCompared = {"parallel.overlap", "parallel.allreduce", "runtime.threads"};
constexpr std::array<std::string_view, 4> kOfTable = {"parallel.mesh", "parallel.bucket", "parallel.sequence",
                                                      "parallel.async_tp"};

// The same steps without a link; over it one thing after the other; and over it, overlapped.
struct Overlap {
  std::string name;
  std::string link;
  double rate = 0;  // bytes per second
  RankTiming free;  // overlapped too: the programs are those of `together`
  RankTiming apart;
  RankTiming together;

  double on_link() const { return free.sent / rate; }
  // If everything were independent of everything.
  double least() const { return std::max(free.step, on_link()); }
  double hidden() const { return together.communication > 0 ? together.hidden / together.communication : 0; }
};

Overlap measure(Context& context, const OverlapArguments& a, const std::string& config, const std::string& name,
                const Settings& settings) {
  const auto with = [&](Settings more, bool traced = false) {
    more.insert(more.begin(), {"runtime.threads=1", "parallel.allreduce=ring"});
    more.insert(more.begin(), settings.begin(), settings.end());
    return time_ranks(context, config, more, a.steps, traced);
  };
  Overlap o;
  o.name = name;
  o.free = with({"runtime.link="});
  if (o.free.sent <= 0) refuse("the ranks of {} send each other nothing", name);
  // As named, or so slow that sending takes the share of a step.
  o.link = given_value(context, "runtime.link");
  if (const auto known = comm::threads::parse_link(o.link); known) {
    if (known->bytes_per_second <= 0)
      refuse("runtime.link = \"{}\" needs a bandwidth here, such as 100MB/s,20us", o.link);
    o.rate = known->bytes_per_second;
  } else {
    o.rate = o.free.sent / (a.share * o.free.step);
    o.link = fmt::format("{:.0f}B/s,10us", o.rate);
  }
  o.apart = with({"runtime.link=" + o.link, "parallel.overlap=false"});
  o.together = with({"runtime.link=" + o.link}, true);
  return o;
}

nlohmann::ordered_json as_json(const Overlap& o) {
  return {{"mesh", o.name},
          {"link", o.link},
          {"sent_bytes", o.free.sent},
          {"on_link_ms", o.on_link() * 1e3},
          {"step_without_link_ms", o.free.step * 1e3},
          {"step_without_overlap_ms", o.apart.step * 1e3},
          {"step_ms", o.together.step * 1e3},
          {"max_of_both_ms", o.least() * 1e3},
          {"allowed_by_order_ms", o.together.allowed * 1e3},
          {"traced_communication_ms", o.together.communication * 1e3},
          {"traced_hidden_ms", o.together.hidden * 1e3},
          {"hidden", o.hidden()},
          {"memory_bytes", o.together.memory},
          {"memory_without_overlap_bytes", o.apart.memory}};
}

void print(const Overlap& o) {
  fmt::print("{} as threads; the link between them is emulated: {}\n", o.name, o.link);
  fmt::print("each rank sends {} a step: {:.1f} ms on that link\n\n",
             format_bytes(static_cast<std::size_t>(o.free.sent)), o.on_link() * 1e3);
  const auto line = [](const char* what, double seconds, const std::string& remark) {
    fmt::print("{:<30} {:>8.1f} ms   {}\n", what, seconds * 1e3, remark);
  };
  line("without a link", o.free.step, "");
  line("with it, not overlapped", o.apart.step, fmt::format("memory {}", format_bytes(o.apart.memory)));
  line("with it, overlapped", o.together.step, fmt::format("memory {}", format_bytes(o.together.memory)));
  line("… as its order allows", o.together.allowed, "the traced kernels and collectives without any other wait");
  line("max(compute, comm)", o.least(), "were everything independent of everything");
  fmt::print("\ntraced: {:.1f} ms in collectives, {:.1f} ms of them hidden behind the computation: {:.0f}%\n",
             o.together.communication * 1e3, o.together.hidden * 1e3, 100 * o.hidden());
}

// Text models over dp and tp, images over h and w.
int print_table(Context& context, const OverlapArguments& a) {
  struct Row {
    const char* name;
    const char* config;
    Settings settings;
  };
  const std::string text = a.config;
  const Row rows[] = {
      {"dp=2, bucket 256KiB", text.c_str(), {"parallel.mesh=dp=2", "parallel.bucket=256KiB"}},
      {"tp=2", text.c_str(), {"parallel.mesh=tp=2"}},
      {"tp=2, sequence", text.c_str(), {"parallel.mesh=tp=2", "parallel.sequence=true"}},
      {"tp=2, sequence, async_tp",
       text.c_str(),
       {"parallel.mesh=tp=2", "parallel.sequence=true", "parallel.async_tp=true"}},
      {"h=2", "convnet", {"parallel.mesh=h=2"}},
      {"w=2", "convnet", {"parallel.mesh=w=2"}},
  };
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  if (!a.json)
    fmt::print("{:<26}{:>10}{:>10}{:>14}{:>12}{:>10}{:>10}{:>9}\n", "milliseconds", "no link", "comm", "not overl.",
               "overlapped", "allowed", "max", "hidden");
  for (const Row& row : rows) {
    const Overlap o = measure(context, a, row.config, row.name, row.settings);
    all.push_back(as_json(o));
    if (a.json) continue;
    fmt::print("{:<26}{:>10.1f}{:>10.1f}{:>14.1f}{:>12.1f}{:>10.1f}{:>10.1f}{:>8.0f}%\n", o.name, o.free.step * 1e3,
               o.on_link() * 1e3, o.apart.step * 1e3, o.together.step * 1e3, o.together.allowed * 1e3, o.least() * 1e3,
               100 * o.hidden());
    std::fflush(stdout);
  }
  if (a.json) fmt::print("{}\n", all.dump());
  return 0;
}

int bench_overlap(Context& context, const OverlapArguments& a) {
  refuse_keys(context, "overlap", kCompared, "it compares steps with and without overlap, of ranks of one thread");
  if (a.table) {
    refuse_keys(context, "overlap --table", kOfTable, "each line has its own");
    return print_table(context, a);
  }
  std::string mesh = given_value(context, "parallel.mesh");
  Settings settings;
  if (mesh.empty()) {
    mesh = fmt::format("dp={}", a.ranks);
    settings.push_back("parallel.mesh=" + mesh);
  }
  const Overlap o = measure(context, a, a.config, mesh, settings);
  if (a.json)
    fmt::print("{}\n", as_json(o).dump());
  else
    print(o);
  return 0;
}

}  // namespace

void add_bench_overlap(CLI::App& bench, Context& context) {
  auto a = std::make_shared<OverlapArguments>();
  CLI::App* overlap = bench.add_subcommand("overlap", "How much communication hides behind the computation");
  overlap->add_option("config", a->config, "A TOML file, a run folder, or a built-in configuration");
  overlap->add_option("--ranks", a->ranks, "Ranks over dp, unless parallel.mesh says more")->check(CLI::Range(2, 64));
  overlap->add_option("--steps", a->steps, "Steps to time, and as many to trace")->check(CLI::Range(1, 1000000));
  overlap
      ->add_option("--share", a->share, "Time on the emulated link as a share of a step, unless runtime.link is given")
      ->check(CLI::Range(0.01, 10.0));
  overlap->add_flag("--table", a->table, "A line for each of dp=2, tp=2 in three ways, and convnet over h=2 and w=2");
  overlap->add_flag("--json", a->json, "For scripts");
  overlap->footer(
      "\nExamples:\n"
      "  trireme bench overlap --parallel.bucket=256KiB\n"
      "  trireme bench overlap --parallel.mesh=tp=2 --parallel.sequence=true --parallel.async_tp=true\n"
      "  trireme bench overlap convnet --parallel.mesh=h=2 --runtime.link=100MB/s,20us\n"
      "  trireme bench overlap --table --share 0.3\n");
  overlap->callback([&context, a] { context.run = [&context, a] { return bench_overlap(context, *a); }; });
}

}  // namespace trireme::cli
