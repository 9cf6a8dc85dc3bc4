#include "trireme/planner/calibrate.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <thread>
#include <tuple>

#include "trireme/comm/measure.h"
#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"
#include "trireme/planner/machine.h"
#include "trireme/planner/measure_link.h"
#include "trireme/planner/replay.h"
#include "trireme/simulator/kernel.h"

namespace trireme::planner {
namespace {

using Clock = std::chrono::steady_clock;
using program::Instruction;

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

// A launch to be measured: each that differs in what decides its speed, once.
struct Measurand {
  simulator::Kernel kernel;
  std::vector<TensorType> inputs;
  ir::Attributes attributes;
  int threads = 1;
};

using Identity = std::tuple<std::string, std::string, int, std::vector<double>>;

Identity identity_of(const simulator::Kernel& kernel, int threads) {
  return {kernel.name, kernel.dtype, threads, kernel.sizes};
}

class Calibration {
 public:
  Calibration(const CalibrateOptions& options, cluster::Cluster& c) : o_(options), c_(c) {
    threads_ = options.threads;
    if (threads_.empty()) {
      threads_.push_back(1);
      if (const int cores = usable_cores(); options.device == device::Kind::cpu && cores > 1) threads_.push_back(cores);
    }
    for (const cluster::MeasuredKernel& m : c.device.measured)
      known_[{m.kernel, m.dtype, static_cast<int>(m.threads), m.sizes}] = true;
  }

  void machine() {
    const bool cpu = o_.device == device::Kind::cpu;
    c_.name = "this machine";
    c_.source = "trireme calibrate";
    c_.transport = "threads";
    c_.software["flash"] = {};
    c_.device.kind = cpu ? "cpu" : "gpu";
    c_.device.name = cpu ? cpu_name() : "GPU";
    c_.device.memory = static_cast<double>(cpu ? total_memory() : memory_of(o_.device));
    c_.node.devices = 64;
    c_.node.cores = cpu ? usable_cores() : 0;
    say("matrix products", 0, 1);
    c_.device.flops["f32"] = matmul_flops(DType::f32, 1, o_.device);
    c_.device.flops["bf16"] = matmul_flops(DType::bf16, 1, o_.device);
    if (!cpu) c_.device.flops["tf32"] = matmul_flops(DType::f32, 1, o_.device, true);
    say("memory", 0, 1);
    memory();
    // Whole bytes, as descriptions are written.
    c_.device.memory_bandwidth = std::round(c_.device.memory_bandwidth);
    c_.inside.bandwidth = std::round(c_.device.memory_bandwidth / 2);
    if (!cpu) return;
    sharing();
    say("threads that wake", 0, 1);
    c_.node.wake = c_.node.busy_wake = c_.node.link_wake = wake();
    collectives();
  }

  void products() {
    // Of small and large layers, forward and both gradients.
    constexpr std::array<std::array<std::int64_t, 3>, 8> kSizes = {{{64, 64, 64},
                                                                    {128, 128, 128},
                                                                    {1024, 128, 128},
                                                                    {128, 512, 128},
                                                                    {1024, 512, 128},
                                                                    {512, 512, 512},
                                                                    {1024, 1024, 1024},
                                                                    {256, 1024, 4096}}};
    std::vector<Measurand> all;
    for (const int threads : threads_)
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const auto& [m, n, k] : kSizes)
          for (const auto& [ta, tb] : {std::pair(false, true), std::pair(false, false), std::pair(true, false)}) {
            Measurand one;
            one.threads = threads;
            one.inputs = {{dtype, ta ? Shape{k, m} : Shape{m, k}},
                          {dtype, tb ? Shape{n, k} : Shape{k, n}},
                          TensorType::none(),
                          TensorType::none()};
            one.attributes = {{"trans_a", ta}, {"trans_b", tb}};
            one.kernel.op = "matmul";
            one.kernel.name = std::string("matmul") + (ta ? "+ta" : "") + (tb ? "+tb" : "");
            one.kernel.dtype = name_of(dtype);
            one.kernel.sizes = {static_cast<double>(m), static_cast<double>(n), static_cast<double>(k)};
            all.push_back(one);
          }
    measure("products", all);
  }

  void kernels() {
    if (o_.device == device::Kind::cpu && !replay()) return;
    std::vector<Measurand> all;
    for (const program::Program* p : o_.programs)
      for (const Instruction& i : p->instructions) {
        if (i.kind != Instruction::Kind::launch || i.on_host) continue;
        Measurand one;
        one.kernel = simulator::kernel_of(i);
        one.threads = p->threads;
        if (known_.contains(identity_of(one.kernel, one.threads))) continue;
        known_[identity_of(one.kernel, one.threads)] = true;
        for (const program::Operand& operand : i.inputs) one.inputs.push_back(operand.type);
        one.attributes = i.attributes;
        all.push_back(one);
      }
    for (const Measurand& m : all) known_.erase(identity_of(m.kernel, m.threads));
    measure("kernels", all);
  }

 private:
  // Of launches of one kernel with the same sizes.
  struct Sum {
    double seconds = 0;
    std::int64_t count = 0;
    double crowded = 0;
    std::int64_t crowds = 0;
  };

  // The launches of whole programs, each in its place. What is too large for this machine's memory is left to be
  // measured one by one. False: the time is up.
  bool replay() {
    const auto begin = Clock::now();
    bool in_time = true;
    constexpr double kShare = 0.25;
    std::map<Identity, Sum> sums;
    for (std::size_t n = 0; n < o_.programs.size(); ++n) {
      const program::Program& p = *o_.programs[n];
      say("kernels", n, o_.programs.size());
      in_time = n == 0 || std::chrono::duration<double>(Clock::now() - begin).count() < o_.limit;
      if (!in_time) break;
      const int cores = usable_cores();
      const int copies = p.threads == 1 ? cores : 1;
      const bool fits = p.is_placed() && static_cast<double>(p.arena_bytes) * copies < kShare * c_.device.memory;
      const auto is_new = [&](const Instruction& i) {
        if (i.kind != Instruction::Kind::launch || i.on_host) return false;
        const Identity identity = identity_of(simulator::kernel_of(i), p.threads);
        return !known_.contains(identity) && !sums.contains(identity);
      };
      if (!fits || std::none_of(p.instructions.begin(), p.instructions.end(), is_new)) continue;
      const std::vector<double> alone = replayed_seconds(p, 1, o_.budget);
      const std::vector<double> together = copies > 1 ? replayed_seconds(p, copies, o_.budget) : std::vector<double>();
      for (std::size_t i = 0; i < p.instructions.size(); ++i) {
        if (alone[i] <= 0) continue;
        const Identity identity = identity_of(simulator::kernel_of(p.instructions[i]), p.threads);
        if (known_.contains(identity)) continue;
        Sum& sum = sums[identity];
        sum.seconds += alone[i];
        ++sum.count;
        if (together.empty()) continue;
        sum.crowded += together[i];
        ++sum.crowds;
      }
    }
    double alone = 0, together = 0;
    for (const auto& [identity, sum] : sums) {
      known_[identity] = true;
      const auto& [kernel, dtype, threads, sizes] = identity;
      const double seconds = sum.seconds / static_cast<double>(sum.count);
      const double crowded = sum.crowds > 0 ? std::max(seconds, sum.crowded / static_cast<double>(sum.crowds)) : 0;
      c_.device.measured.push_back({kernel, dtype, threads, sizes, seconds, crowded});
      if (sum.crowds == 0) continue;
      alone += sum.seconds;
      together += sum.crowded;
    }
    if (alone > 0) c_.node.busy_slowdown = std::max(1.0, together / alone);
    return in_time;
  }

  // A thread sleeps for as long as idle cores take to rest, and is woken.
  static double wake() {
    constexpr int kRounds = 200;
    std::atomic<int> round{0};
    std::atomic<std::int64_t> woken{0};  // when the sleeper went on, in ticks
    std::thread sleeper([&] {
      for (int i = 0; i < kRounds; ++i) {
        round.wait(i);
        woken.store(Clock::now().time_since_epoch().count());
      }
    });
    std::vector<double> seconds;
    for (int i = 0; i < kRounds; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      woken.store(0);
      const auto begin = Clock::now();
      round.store(i + 1);
      round.notify_one();
      while (woken.load() == 0) {
      }
      seconds.push_back(
          std::chrono::duration<double>(Clock::duration(woken.load()) - begin.time_since_epoch()).count());
    }
    sleeper.join();
    std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
    return std::max(0.0, seconds[kRounds / 2]);
  }

  void say(const std::string& what, std::size_t done, std::size_t total) const {
    if (o_.on_progress) o_.on_progress(what, done, total);
  }

  void measure(const std::string& what, const std::vector<Measurand>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Measurand& m = all[i];
      say(what, i, all.size());
      bool& known = known_[identity_of(m.kernel, m.threads)];
      if (known) continue;
      known = true;
      c_.device.measured.push_back({m.kernel.name, m.kernel.dtype, m.threads, m.kernel.sizes,
                                    op_seconds(m.kernel.op, m.inputs, m.attributes, m.threads, o_.device)});
    }
  }

  void memory() {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    if (o_.device != device::Kind::cpu) {
      c_.device.memory_bandwidth = copy_speed(o_.device);
      return;
    }
    // A copy reads and writes.
    const int cores = usable_cores();
    c_.device.memory_bandwidth =
        2e6 * static_cast<double>(kBytes) * cores / comm::measure_in_place(cores, kBytes, {.batches = 5});
  }

  // What a kernel takes longer while all cores work for ranks of their own.
  void sharing() {
    const int cores = usable_cores();
    say("cores shared by ranks", 0, 1);
    const Product product{.m = 512, .n = 512, .k = 512, .trans_b = true};
    // Other work on this machine makes a round longer and never shorter: the shortest counts.
    constexpr int kRounds = 5;
    double alone = std::numeric_limits<double>::infinity();
    double shared = alone;
    for (int round = 0; round < kRounds; ++round) {
      alone = std::min(alone, product_seconds(product, 1));
      std::vector<double> together(static_cast<std::size_t>(cores));
      std::vector<std::thread> ranks;
      ranks.reserve(together.size());
      for (double& seconds : together)
        ranks.emplace_back([&seconds, &product] { seconds = product_seconds(product, 1); });
      for (std::thread& rank : ranks) rank.join();
      shared = std::min(shared, *std::max_element(together.begin(), together.end()));
    }
    c_.node.busy_slowdown = std::max(1.0, shared / alone);
  }

  void collectives() {
    const auto cores = static_cast<double>(usable_cores());
    std::size_t done = 0;
    for (const int ranks : o_.ranks)
      for (const std::size_t bytes : link_sizes()) {
        say("collectives", done++, o_.ranks.size() * link_sizes().size());
        comm::threads::run(ranks, {.link = "", .timeout = 600}, [&](comm::Communicator& comm) {
          const auto measured = measured_collectives(comm, bytes, cores);
          if (comm.rank() == 0) c_.inside.measured.insert(c_.inside.measured.end(), measured.begin(), measured.end());
        });
      }
    // Without a measurement of its own a message takes what the smallest took.
    for (const cluster::MeasuredCollective& m : c_.inside.measured)
      if (m.collective == "message" && m.bytes == static_cast<double>(link_sizes().front()))
        c_.inside.latency = m.seconds;
  }

  const CalibrateOptions& o_;
  cluster::Cluster& c_;
  std::vector<int> threads_;
  std::map<Identity, bool> known_;
};

}  // namespace

cluster::Cluster calibrate(const CalibrateOptions& options) {
  cluster::Cluster cluster;
  Calibration calibration(options, cluster);
  calibration.machine();
  if (options.products) calibration.products();
  calibration.kernels();
  cluster.network = cluster.inside;
  return cluster;
}

void measure_kernels(cluster::Cluster& cluster, const CalibrateOptions& options) {
  Calibration(options, cluster).kernels();
}

}  // namespace trireme::planner
