#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <thread>

#include "trireme/cli/bench.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/tier_file.h"
#include "trireme/planner/machine.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

using program::Instruction;

struct OffloadArguments {
  std::string config = "quickstart";
  int steps = 5;
  int warmup = 1;
  bool json = false;
};

constexpr std::array<const char*, 3> kPhases = {"forward", "backward", "update"};
using PerPhase = std::array<double, 3>;

std::size_t phase_of(ir::Phase phase) {
  if (phase == ir::Phase::forward) return 0;
  return phase == ir::Phase::update ? 2 : 1;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Page-aligned memory for transfers.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(program::aligned(std::max<std::size_t>(bytes, 1), program::kPage)),
        memory_(static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{program::kPage}))) {
    std::fill_n(memory_, bytes_, std::byte{1});
  }
  ~Pages() { ::operator delete (memory_, std::align_val_t{program::kPage}); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::span<std::byte> first(std::size_t bytes) const { return {memory_, program::aligned(bytes, program::kPage)}; }

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

// Bytes per second of plain sequential transfers, past the cache.
struct Disk {
  double write = 0;
  double read = 0;
};

Disk sequential(const std::filesystem::path& folder) {
  constexpr std::size_t kBlock = std::size_t{32} << 20;
  constexpr std::size_t kBlocks = 16;
  const device::TierFile file(folder, kBlock * kBlocks);
  device::TierChannel channel(file);
  const Pages pages(kBlock);
  const auto all = [&](bool writes) {
    const double seconds = seconds_of([&] {
      for (std::size_t b = 0; b < kBlocks; ++b)
        if (writes)
          channel.write(b * kBlock, pages.first(kBlock));
        else
          channel.read(b * kBlock, pages.first(kBlock));
    });
    return static_cast<double>(kBlock * kBlocks) / seconds;
  };
  all(true);  // the file's blocks are touched for the first time; that is not timed
  Disk disk;
  for (int round = 0; round < 3; ++round) {
    disk.write = std::max(disk.write, all(true));
    disk.read = std::max(disk.read, all(false));
  }
  return disk;
}

// The program's copies alone, in their order, both directions at once as the program has them.
class Copies {
 public:
  Copies(const program::Program& program, const std::filesystem::path& folder)
      : program_(program), file_(folder, program.bytes_in(2)), to_(largest()), from_(largest()) {
    // Blocks that were never written are not read from the disk.
    device::TierChannel channel(file_);
    constexpr std::size_t kBlock = std::size_t{1} << 20;
    const Pages block(kBlock);
    for (std::size_t at = 0; at < file_.bytes(); at += kBlock)
      channel.write(at, block.first(std::min(kBlock, file_.bytes() - at)));
  }

  double bytes(Instruction::Kind kind, std::size_t phase) const {
    double sum = 0;
    for (const Instruction& i : program_.instructions)
      if (i.kind == kind && phase_of(i.phase) == phase) sum += static_cast<double>(i.outputs.front().type.bytes());
    return sum;
  }

  double seconds(std::size_t phase) {
    return seconds_of([&] {
      std::thread stores([&] { run(Instruction::Kind::store, phase); });
      run(Instruction::Kind::load, phase);
      stores.join();
    });
  }

  // All of one direction, nothing beside it: bytes per second.
  double rate(Instruction::Kind kind) {
    double sum = 0;
    for (std::size_t p = 0; p < kPhases.size(); ++p) sum += bytes(kind, p);
    double rate = 0;
    for (int round = 0; round < 3; ++round)  // the best of as many as of the sequential ones
      rate = std::max(rate, sum / seconds_of([&] {
                              for (std::size_t p = 0; p < kPhases.size(); ++p) run(kind, p);
                            }));
    return rate;
  }

 private:
  std::size_t largest() const {
    std::size_t most = 0;
    for (const Instruction& i : program_.instructions)
      if (i.kind == Instruction::Kind::store || i.kind == Instruction::Kind::load)
        most = std::max(most, i.outputs.front().type.bytes());
    return most;
  }

  void run(Instruction::Kind kind, std::size_t phase) {
    const bool stores = kind == Instruction::Kind::store;
    device::TierChannel channel(file_);
    for (const Instruction& i : program_.instructions) {
      if (i.kind != kind || phase_of(i.phase) != phase) continue;
      const program::Operand& there = stores ? i.outputs.front() : i.inputs.front();
      const std::size_t offset = program_.buffers[static_cast<std::size_t>(there.buffer)].offset + there.offset;
      if (channel.on_their_way() == device::TierChannel::kAhead) end_one(channel);
      if (stores)
        channel.begin_write(0, offset, to_.first(there.type.bytes()));
      else
        channel.begin_read(0, offset, from_.first(there.type.bytes()));
    }
    while (channel.on_their_way() > 0) end_one(channel);
  }

  static void end_one(device::TierChannel& channel) {
    if (const device::TierChannel::Ended ended = channel.wait(); !ended.error.empty()) fail("{}", ended.error);
  }

  const program::Program& program_;
  device::TierFile file_;
  Pages to_;
  Pages from_;
};

struct Timed {
  double step = 0;  // seconds, median
  PerPhase compute{};
  PerPhase waited{};
};

Timed time_steps(train::Trainer& trainer, const OffloadArguments& a) {
  trainer.start();
  const train::Config& c = trainer.config();
  data::Loader loader = trainer.batches();
  std::vector<double> seconds;
  std::array<std::vector<double>, 3> compute;
  std::array<std::vector<double>, 3> waited;
  for (int i = 0; i < a.warmup + a.steps; ++i) {
    const data::Batch& batch = loader.next();
    const double s =
        seconds_of([&] { trainer.session().step(batch, i, train::learning_rate(c.train, i), c.train.seed); });
    if (i < a.warmup) continue;
    seconds.push_back(s);
    const auto sums = [](const std::array<double, 4>& p) { return PerPhase{p[0], p[1] + p[2], p[3]}; };
    const PerPhase now = sums(trainer.session().step_executor().phase_seconds());
    const PerPhase wait = sums(trainer.session().step_executor().wait_seconds());
    for (std::size_t p = 0; p < kPhases.size(); ++p) {
      compute[p].push_back(now[p]);
      waited[p].push_back(wait[p]);
    }
  }
  Timed timed;
  timed.step = median(seconds);
  for (std::size_t p = 0; p < kPhases.size(); ++p) {
    timed.compute[p] = median(compute[p]);
    timed.waited[p] = median(waited[p]);
  }
  return timed;
}

train::Config plain(train::Config config) {
  config.memory.offload = "none";
  config.memory.limit = {};
  config.output.staging = "4KiB";
  return config;
}

int bench_offload(Context& context, const OffloadArguments& a) {
  train::TrainerOptions options;
  options.write = false;
  train::Config config = train::load_config(a.config, context.overrides, context.registry->models);
  if (config.memory.offload == "none") config.memory.offload = "all";
  if (config.output.staging == "auto") config.output.staging = "4KiB";  // nothing is saved here
  const std::filesystem::path folder = config.memory.offload_dir.empty()
                                           ? std::filesystem::current_path()
                                           : std::filesystem::path(config.memory.offload_dir);
  config.memory.offload_dir = folder.string();

  Timed alone;
  std::size_t alone_bytes = 0;
  bool fits = false;
  {
    train::Trainer trainer(plain(config), *context.registry, options);
    alone_bytes = trainer.compiled().arena_bytes;
    fits = alone_bytes < planner::total_memory() / 2;
    if (fits) alone = time_steps(trainer, a);
  }
  const Disk disk = sequential(folder);
  train::Trainer trainer(config, *context.registry, options);
  const Timed moved = time_steps(trainer, a);
  const program::Program& program = trainer.compiled().step;
  if (program.bytes_in(2) == 0) refuse("memory.offload = \"{}\" moves nothing of this model", config.memory.offload);
  Copies copies(program, folder);
  const double write_rate = copies.rate(Instruction::Kind::store);
  const double read_rate = copies.rate(Instruction::Kind::load);
  const PerPhase& compute = fits ? alone.compute : moved.compute;
  PerPhase copy{};
  double law = 0;
  nlohmann::ordered_json phases = nlohmann::ordered_json::array();
  std::string table = fmt::format("{:<10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "phase", "compute ms", "stored",
                                  "loaded", "copy ms", "larger ms", "waited ms");
  for (std::size_t p = 0; p < kPhases.size(); ++p) {
    std::vector<double> rounds;
    rounds.reserve(3);
    for (int round = 0; round < 3; ++round) rounds.push_back(copies.seconds(p));
    copy[p] = median(rounds);
    law += std::max(compute[p], copy[p]);
    const double stored = copies.bytes(Instruction::Kind::store, p);
    const double loaded = copies.bytes(Instruction::Kind::load, p);
    table += fmt::format("{:<10}{:>12.1f}{:>12}{:>12}{:>12.1f}{:>12.1f}{:>12.1f}\n", kPhases[p], 1e3 * compute[p],
                         format_bytes(static_cast<std::size_t>(stored)), format_bytes(static_cast<std::size_t>(loaded)),
                         1e3 * copy[p], 1e3 * std::max(compute[p], copy[p]), 1e3 * moved.waited[p]);
    phases.push_back({{"phase", kPhases[p]},
                      {"compute_ms", 1e3 * compute[p]},
                      {"stored_bytes", stored},
                      {"loaded_bytes", loaded},
                      {"copy_ms", 1e3 * copy[p]},
                      {"waited_ms", 1e3 * moved.waited[p]}});
  }
  const train::Compiled& c = trainer.compiled();
  if (a.json) {
    nlohmann::ordered_json o = {{"step_ms", 1e3 * moved.step},
                                {"law_ms", 1e3 * law},
                                {"ratio", moved.step / law},
                                {"compute_alone", fits},
                                {"plain_peak_bytes", alone_bytes},
                                {"peak_bytes", c.arena_bytes},
                                {"disk_bytes", c.tier_bytes[2]},
                                {"sequential_write_gb_s", disk.write / 1e9},
                                {"sequential_read_gb_s", disk.read / 1e9},
                                {"write_gb_s", write_rate / 1e9},
                                {"read_gb_s", read_rate / 1e9}};
    if (fits) o["plain_step_ms"] = 1e3 * alone.step;
    o["phases"] = phases;
    fmt::print("{}\n", o.dump());
    return 0;
  }
  fmt::print("memory  {} without, {} with memory.offload = \"{}\" ({}) and {} on disk\n", format_bytes(alone_bytes),
             format_bytes(c.arena_bytes), config.memory.offload, config.memory.offload_policy,
             format_bytes(c.tier_bytes[2]));
  fmt::print(
      "disk    sequential {:.2f} GB/s out, {:.2f} in; the step's copies alone {:.2f} ({:.0f}%) and {:.2f} ({:.0f}%)\n",
      disk.write / 1e9, disk.read / 1e9, write_rate / 1e9, 100 * write_rate / disk.write, read_rate / 1e9,
      100 * read_rate / disk.read);
  fmt::print("{}", table);
  if (fits) fmt::print("step    {:.1f} ms without\n", 1e3 * alone.step);
  fmt::print("step    {:.1f} ms = {:.2f} × {:.1f} ms, the sum of the larger of computing{} and copying\n",
             1e3 * moved.step, moved.step / law, 1e3 * law, fits ? "" : " (as timed beside the copies)");
  return 0;
}

}  // namespace

void add_bench_offload(CLI::App& bench, Context& context) {
  auto arguments = std::make_shared<OffloadArguments>();
  CLI::App* command =
      bench.add_subcommand("offload", "A step with tensors on disk against its parts: computing alone, copying alone");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command->add_option("--steps", arguments->steps, "Steps to time")->check(CLI::Range(1, 1000000));
  command->add_option("--warmup", arguments->warmup, "Steps before")->check(CLI::Range(0, 1000000));
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n"
      "  trireme bench offload --memory.offload=activations --model.layers=6 --model.width=512 --model.heads=8\n"
      "  trireme bench offload my.toml --memory.offload=all --memory.offload_dir=/mnt/fast\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return bench_offload(context, *arguments); }; });
}

}  // namespace trireme::cli
