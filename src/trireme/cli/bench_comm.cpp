#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/cli/bench.h"
#include "trireme/comm/measure.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

using comm::Algorithm;

struct CommArguments {
  std::string transport = "threads";
  std::string link;
  std::vector<int> ranks = {2, 4};
  std::vector<std::string> sizes = {"1KiB", "16KiB", "256KiB", "4MiB", "64MiB"};
  std::vector<std::string> algorithms = {"native", "sequential", "parallel", "ring", "recursive", "tree"};
  int batches = 15;
  bool blocking = false;
  bool bound = false;
  bool tune = false;
  bool json = false;
};

struct Result {
  std::string transport;
  comm::TransportKind kind;
  int ranks;
  comm::Measurement measured;
};

class CommBench {
 public:
  explicit CommBench(const CommArguments& a) : a_(a) {
    options_.batches = a.batches;
    for (const std::string& name : a.algorithms) {
      const Algorithm algorithm = comm::parse_algorithm(name);
      if (algorithm == Algorithm::automatic) refuse("--algorithms auto: name those to be measured");
      algorithms_.push_back(algorithm);
    }
    for (const std::string& text : a.sizes) {
      const auto bytes = parse_bytes(text);
      if (!bytes || *bytes < 4) refuse("--sizes {}: expected a size of at least 4 bytes, like 64KiB", text);
      sizes_.push_back(*bytes / 4 * 4);
    }
    std::sort(sizes_.begin(), sizes_.end());
  }

  int run() {
    if (a_.transport == "mpi") return over_mpi();
    if (a_.transport != "threads") refuse("--transport {}: expected threads or mpi", a_.transport);
    for (const int ranks : a_.ranks)
      for (const std::size_t bytes : sizes_) {
        look_at_bound(ranks, bytes);
        comm::threads::run(ranks, {.link = a_.link, .timeout = 600}, [&](comm::Communicator& c) {
          comm::bind_to_core(c.rank(), ranks);
          measure(c, bytes, a_.link.empty() ? "threads" : "threads " + a_.link);
        });
        look_at_bound(ranks, bytes);
      }
    look_again();
    if (a_.json) print_bounds();
    report();
    if (a_.tune) keep(a_.link.empty() ? comm::TransportKind::threads : comm::TransportKind::emulated);
    return 0;
  }

 private:
  int over_mpi() {
    if (!a_.link.empty()) refuse("--link: only the threads transport can pretend to a link");
    if (comm::mpi::available() && !comm::mpi::launched())
      refuse(
          "--transport mpi: this process was not started by mpirun or srun; try: mpirun -n 4 trireme bench comm "
          "--transport mpi");
    comm::mpi::Session session({.timeout = 600, .tuning = nullptr, .blocking_native = a_.blocking});
    comm::Communicator c = session.communicator();
    for (const std::size_t bytes : sizes_) measure(c, bytes, "mpi");
    if (session.rank() != 0) return 0;
    report();
    if (a_.tune) keep(comm::TransportKind::mpi);
    return 0;
  }

  // On every rank.
  void measure(comm::Communicator& c, std::size_t bytes, const std::string& transport) {
    for (const Algorithm algorithm : algorithms_) {
      const comm::Measurement m = comm::measure_all_reduce(c, algorithm, bytes, options_);
      if (c.rank() == 0) add({transport, c.transport(), c.size(), m});
    }
  }

  // A bound is the best of all looks at it: before and after what it bounds, since a machine's speed changes.
  void look_at_bound(int ranks, std::size_t bytes) {
    if (!a_.bound) return;
    const double us = comm::measure_in_place(ranks, bytes, options_);
    const auto [known, first] = bound_us_.try_emplace({ranks, bytes}, us);
    if (!first) known->second = std::min(known->second, us);
  }

  // Where something was quicker, the least of the looks was above the truth; a further one can only lower it.
  void look_again() {
    constexpr int kLooks = 30;
    for (const Result& r : results_)
      for (int look = 0; look < kLooks && a_.bound; ++look) {
        if (r.measured.best_us >= bound_us_.at({r.ranks, r.measured.bytes})) break;
        look_at_bound(r.ranks, r.measured.bytes);
      }
  }

  void print_bounds() const {
    for (const auto& [key, us] : bound_us_) {
      const nlohmann::ordered_json o = {{"transport", "bound"},
                                        {"algorithm", "in place"},
                                        {"ranks", key.first},
                                        {"bytes", key.second},
                                        {"best_us", us}};
      fmt::print("{}\n", o.dump());
    }
  }

  void add(const Result& r) {
    results_.push_back(r);
    if (!a_.json) return;
    const nlohmann::ordered_json o = {{"transport", r.transport},
                                      {"algorithm", comm::name_of(r.measured.algorithm)},
                                      {"ranks", r.ranks},
                                      {"bytes", r.measured.bytes},
                                      {"median_us", r.measured.median_us},
                                      {"best_us", r.measured.best_us},
                                      {"bus_gb_s", r.measured.bus_gb_s(r.ranks)},
                                      {"steps", r.measured.steps},
                                      {"sent_bytes_per_rank", r.measured.sent}};
    fmt::print("{}\n", o.dump());
    std::fflush(stdout);
  }

  void report() const {
    if (a_.json) return;
    int ranks = 0;
    std::size_t bytes = 0;
    for (const Result& r : results_) {
      if (r.ranks != ranks) {
        fmt::print("{}{}, {} ranks: all-reduce of f32\n", ranks == 0 ? "" : "\n", r.transport, r.ranks);
        fmt::print("  {:>9} {:<11}{:>12} {:>11}   {:<14}{}\n", "bytes", "algorithm", "median", "bus", "steps (law)",
                   "sent per rank, most (law)");
      }
      if (r.ranks != ranks || r.measured.bytes != bytes) fmt::print("\n");
      ranks = r.ranks;
      bytes = r.measured.bytes;
      const comm::Measurement& m = r.measured;
      const comm::Law law = comm::law_of(r.kind, m.algorithm, m.bytes, 4, r.ranks);
      // Native on an emulated link is whatever algorithm stands in for it.
      const bool lawful = !(r.kind == comm::TransportKind::emulated && m.algorithm == Algorithm::native);
      fmt::print("  {:>9} {:<11}{:>9.1f} µs {:>6.2f} GB/s   {:<14}{}\n", format_bytes(m.bytes),
                 comm::name_of(m.algorithm), m.median_us, m.bus_gb_s(r.ranks),
                 lawful ? fmt::format("{} ({})", m.steps, law.steps) : fmt::format("{}", m.steps),
                 lawful ? fmt::format("{} ({})", format_count(m.sent), format_count(law.sent)) : format_count(m.sent));
    }
    for (const auto& [key, us] : bound_us_)
      fmt::print("\n{} threads that read and write {} each in place take {:.1f} µs: no all-reduce is quicker\n",
                 key.first, format_bytes(key.second), us);
    picture();
  }

  // Which algorithm is quickest, by size (to the right) and ranks (down).
  void picture() const {
    if (algorithms_.size() < 2 || sizes_.size() < 2) return;
    const auto draw = [&](bool with_native) {
      std::map<int, std::map<std::size_t, const Result*>> best;
      for (const Result& r : results_) {
        if (!with_native && r.measured.algorithm == Algorithm::native) continue;
        const Result*& place = best[r.ranks][r.measured.bytes];
        if (place == nullptr || r.measured.median_us < place->measured.median_us) place = &r;
      }
      fmt::print("  {:>8}", "ranks");
      for (const std::size_t bytes : sizes_) fmt::print(" {:>10}", format_bytes(bytes));
      fmt::print("\n");
      for (const auto& [ranks, row] : best) {
        fmt::print("  {:>8}", ranks);
        for (const auto& [bytes, r] : row) fmt::print(" {:>10}", comm::name_of(r->measured.algorithm));
        fmt::print("\n");
      }
    };
    fmt::print("\nquickest\n");
    draw(true);
    if (std::find(algorithms_.begin(), algorithms_.end(), Algorithm::native) == algorithms_.end()) return;
    fmt::print("\nquickest over messages\n");
    draw(false);
  }

  // Entries of this transport and these rank counts are replaced; others stay.
  void keep(comm::TransportKind kind) const {
    const std::string file = comm::tuning_file();
    comm::Tuning tuning = comm::load_tuning(file);
    std::set<int> measured;
    for (const Result& r : results_) measured.insert(r.ranks);
    std::erase_if(tuning.entries,
                  [&](const comm::Tuning::Entry& e) { return e.transport == kind && measured.contains(e.ranks); });
    for (const int ranks : measured)
      for (const std::size_t bytes : sizes_) {
        const Result* best = nullptr;
        for (const Result& r : results_)
          if (r.ranks == ranks && r.measured.bytes == bytes &&
              (best == nullptr || r.measured.median_us < best->measured.median_us))
            best = &r;
        // A run of sizes with one winner is one entry.
        auto& entries = tuning.entries;
        if (!entries.empty() && entries.back().transport == kind && entries.back().ranks == ranks &&
            entries.back().algorithm == best->measured.algorithm)
          entries.back().bytes = bytes;
        else
          entries.push_back({kind, ranks, bytes, best->measured.algorithm});
      }
    comm::save_tuning(tuning, file);
    if (!a_.json) fmt::print("\nkept in {}\n", file);
  }

  const CommArguments& a_;
  comm::MeasureOptions options_;
  std::vector<Algorithm> algorithms_;
  std::vector<std::size_t> sizes_;
  std::vector<Result> results_;
  std::map<std::pair<int, std::size_t>, double> bound_us_;
};

}  // namespace

void add_bench_comm(CLI::App& bench, Context& context) {
  auto a = std::make_shared<CommArguments>();
  CLI::App* command = bench.add_subcommand("comm", "Time all-reduce: algorithm × size × ranks");
  command->add_option("--transport", a->transport, "threads, or mpi (under mpirun or srun)");
  command->add_option("--link", a->link, "Emulated link between threads: 1GB/s,20us");
  command->add_option("--ranks", a->ranks, "Rank counts (threads)")->delimiter(',')->check(CLI::Range(1, 256));
  command->add_option("--sizes", a->sizes, "Sizes of the tensor")->delimiter(',');
  command->add_option("--algorithms", a->algorithms, "Which to time")->delimiter(',');
  command->add_option("--batches", a->batches, "Measurements of each, whose median counts")
      ->check(CLI::Range(1, 10000));
  command->add_flag("--blocking", a->blocking, "mpi: native by MPI_Allreduce instead of MPI_Iallreduce");
  command->add_flag("--bound", a->bound,
                    "threads: also time reading and writing as many bytes in place, which bounds an all-reduce");
  command->add_flag("--tune", a->tune, "Keep the winners for parallel.allreduce = \"auto\" on this machine");
  command->add_flag("--json", a->json, "For scripts: an object per measurement");
  command->footer(
      "\nExamples:\n"
      "  trireme bench comm --ranks 2,4,8\n"
      "  trireme bench comm --link 1GB/s,20us --ranks 8 --sizes 1KiB,32KiB,1MiB\n"
      "  mpirun -n 4 trireme bench comm --transport mpi\n");
  command->callback([&context, a] { context.run = [a] { return CommBench(*a).run(); }; });
}

}  // namespace trireme::cli
