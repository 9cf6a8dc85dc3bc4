#include "trireme/planner/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <unordered_map>

#include "trireme/core/rng.h"
#include "trireme/core/thread_pool.h"
#include "trireme/core/undisturbed.h"
#include "trireme/device/arena.h"

namespace trireme::planner {
namespace {

using Clock = std::chrono::steady_clock;
using program::Instruction;
using program::Operand;

// Launches that a kernel need not be prepared for again.
std::string signature(const Instruction& i) {
  std::string key = fmt::format("{}|{}", i.op->name, i.accumulate);
  for (const auto& [name, value] : i.attributes) key += "|" + name + "=" + ir::to_text(value);
  for (const Operand& o : i.inputs) key += "|" + o.type.str();
  key += "→";
  for (const Operand& o : i.outputs) key += "|" + o.type.str();
  return key;
}

// One rank's memory and kernels, without the other ranks.
class Rank {
 public:
  explicit Rank(const program::Program& program)
      : program_(program), arena_(program.arena_bytes, device::Kind::cpu), pool_(program.threads) {
    std::unordered_map<std::string, device::Kernel*> known;
    for (const Instruction& i : program.instructions) {
      Prepared& p = prepared_.emplace_back();
      for (const Operand& o : i.inputs) p.inputs.push_back(place(o));
      for (const Operand& o : i.outputs) p.outputs.push_back(place(o));
      p.workspace = place(i.workspace);
      if (i.kind != Instruction::Kind::launch || i.on_host) continue;
      device::Kernel*& kernel = known[signature(i)];
      if (kernel == nullptr) {
        ir::Types inputs, outputs;
        for (const Operand& o : i.inputs) inputs.push_back(o.type);
        for (const Operand& o : i.outputs) outputs.push_back(o.type);
        kernels_.push_back(i.op->kernels.at(device::Kind::cpu)
                               .prepare({inputs, outputs, i.attributes, program.threads, i.accumulate}));
        kernel = kernels_.back().get();
      }
      p.kernel = kernel;
    }
    samples_.resize(prepared_.size());
    fill_states();
  }

  void pass(bool counts) {
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      const Prepared& p = prepared_[i];
      const Instruction& instruction = program_.instructions[i];
      if (p.kernel == nullptr) {
        stand_in(instruction, p);
        continue;
      }
      const auto begin = Clock::now();
      p.kernel->launch({p.inputs, p.outputs, p.workspace, &pool_, nullptr});
      if (counts) samples_[i].push_back(std::chrono::duration<float>(Clock::now() - begin).count());
    }
  }

  double seconds(std::size_t i) const { return static_cast<double>(undisturbed(samples_[i])); }

 private:
  struct Prepared {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* workspace = nullptr;
    device::Kernel* kernel = nullptr;
  };

  // Numbers as a step has them: updates leave out what is not finite, so that second moments must not be negative.
  static void fill(void* to, const TensorType& type, program::Category category, SplitMix& random) {
    const auto count = static_cast<std::size_t>(type.elements());
    const double least = category == program::Category::optimizer ? 0 : -0.02;
    const auto small = [&] { return static_cast<float>(least + (0.02 - least) * random.unit()); };
    switch (type.dtype) {
      case DType::f32: std::generate_n(static_cast<float*>(to), count, small); break;
      case DType::bf16:
        std::generate_n(static_cast<std::uint16_t*>(to), count, [&] { return BFloat16(small()).bits; });
        break;
      case DType::f16:
        std::generate_n(static_cast<std::uint16_t*>(to), count, [&] { return Float16(small()).bits; });
        break;
      default: std::memset(to, 0, type.bytes());
    }
  }

  void fill_states() {
    SplitMix random(1);
    std::vector<bool> done(program_.buffers.size(), false);
    for (std::size_t i = 0; i < prepared_.size(); ++i)
      for (std::size_t o = 0; o < prepared_[i].inputs.size(); ++o) {
        const Operand& operand = program_.instructions[i].inputs[o];
        if (operand.buffer == program::kNone || prepared_[i].inputs[o] == nullptr) continue;
        const auto buffer = static_cast<std::size_t>(operand.buffer);
        if (program_.buffers[buffer].state < 0 || done[buffer] || operand.offset > 0) continue;
        done[buffer] = true;
        fill(const_cast<void*>(prepared_[i].inputs[o]), operand.type, program_.buffers[buffer].category, random);
      }
  }

  // What comes from outside: small numbers, of which integers may be indices and others a rate of learning.
  static void stand_in(const Instruction& i, const Prepared& p) {
    if (i.moves()) return;
    for (std::size_t o = 0; o < i.outputs.size(); ++o) {
      const TensorType& type = i.outputs[o].type;
      auto* const to = static_cast<std::byte*>(p.outputs[o]);
      if (to == nullptr) continue;
      const std::size_t own = o < i.inputs.size() && i.inputs[o].type.present ? i.inputs[o].type.bytes() : 0;
      if ((i.kind == Instruction::Kind::copy || i.kind == Instruction::Kind::collective) && own > 0) {
        if (to == p.inputs[o]) continue;
        for (std::size_t at = 0; at < type.bytes(); at += own)
          std::memmove(to + at, p.inputs[o], std::min(own, type.bytes() - at));
      } else if (type.dtype == DType::i32) {
        for (std::int64_t e = 0; e < type.elements(); ++e)
          reinterpret_cast<std::int32_t*>(to)[e] = 1 - static_cast<std::int32_t>(e % 2);
      } else if (type.dtype == DType::i64) {
        for (std::int64_t e = 0; e < type.elements(); ++e) reinterpret_cast<std::int64_t*>(to)[e] = 1 - e % 2;
      } else if (type.dtype == DType::f32) {
        std::fill_n(reinterpret_cast<float*>(to), type.elements(), 1e-4F);
      } else {
        std::memset(to, 0, type.bytes());
      }
    }
  }

  std::byte* place(const Operand& o) {
    if (o.buffer == program::kNone) return nullptr;
    const program::Buffer& buffer = program_.buffers[static_cast<std::size_t>(o.buffer)];
    return buffer.tier == 0 ? arena_.data() + buffer.offset + o.offset : nullptr;
  }

  const program::Program& program_;
  device::Arena arena_;
  ThreadPool pool_;
  std::vector<std::shared_ptr<device::Kernel>> kernels_;
  std::vector<Prepared> prepared_;
  std::vector<std::vector<float>> samples_;  // by instruction
};

}  // namespace

std::vector<double> replayed_seconds(const program::Program& program, int copies, double budget) {
  constexpr int kLeast = 3;
  constexpr int kMax = 25;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < copies; ++r) ranks.push_back(std::make_unique<Rank>(program));
  std::atomic<int> working = copies;
  std::barrier start(copies);
  std::vector<std::exception_ptr> errors(ranks.size());
  const auto work = [&](std::size_t r) {
    try {
      ranks[r]->pass(false);
    } catch (...) {
      errors[r] = std::current_exception();
    }
    start.arrive_and_wait();
    if (errors[r]) {
      --working;
      return;
    }
    // Long programs once: what disturbs one launch has others in the same program to make up for it.
    const auto begin = Clock::now();
    const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    for (int done = 0; done == 0 || (done < kMax && spent() < budget) || (done < kLeast && spent() < kLeast * budget);
         ++done)
      ranks[r]->pass(true);
    // The others' last passes are to be as crowded as their first.
    --working;
    while (working > 0) ranks[r]->pass(false);
  };
  std::vector<std::thread> threads;
  for (std::size_t r = 1; r < ranks.size(); ++r) threads.emplace_back(work, r);
  work(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  std::vector<double> seconds(program.instructions.size(), 0);
  for (std::size_t i = 0; i < seconds.size(); ++i)
    for (const auto& rank : ranks) seconds[i] += rank->seconds(i) / static_cast<double>(copies);
  return seconds;
}

}  // namespace trireme::planner
