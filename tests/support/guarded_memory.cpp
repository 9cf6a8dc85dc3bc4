#include "support/guarded_memory.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "trireme/core/error.h"
#include "trireme/device/kernel.h"

namespace trireme::testing {
namespace {

constexpr std::size_t kCanary = program::kAlignment;
constexpr std::byte kPattern{0x5C};
constexpr std::byte kPoison{0xFF};  // NaN in every float

ir::OpDef op(const std::string& name, void (*work)(const device::Launch&, std::size_t bytes)) {
  ir::OpDef def;
  def.name = name;
  def.no_gradient = "it is for tests";
  ir::KernelDef& kernel = def.kernels[device::Kind::cpu];
  kernel.supports = [](const ir::KernelSpec&) { return true; };
  kernel.prepare = [work](const ir::KernelSpec& spec) {
    const std::size_t bytes = (spec.inputs.empty() ? spec.outputs : spec.inputs).front().bytes();
    return device::make_kernel([work, bytes](const device::Launch& launch) { work(launch, bytes); });
  };
  return def;
}

const ir::OpDef& write_canary() {
  static const ir::OpDef def = op("write_canary", [](const device::Launch& launch, std::size_t bytes) {
    std::fill_n(launch.out<std::byte>(0), bytes, kPattern);
  });
  return def;
}

const ir::OpDef& check_canary() {
  static const ir::OpDef def = op("check_canary", [](const device::Launch& launch, std::size_t bytes) {
    const auto* first = launch.in<std::byte>(0);
    const auto* bad = std::find_if(first, first + bytes, [](std::byte b) { return b != kPattern; });
    if (bad != first + bytes) fail("byte {} behind its end was written", bad - first);
  });
  return def;
}

const ir::OpDef& poison() {
  static const ir::OpDef def = op("poison", [](const device::Launch& launch, std::size_t bytes) {
    std::fill_n(launch.out<std::byte>(0), bytes, kPoison);
  });
  return def;
}

program::Instruction launch(const ir::OpDef& def, const std::string& name) {
  program::Instruction i;
  i.name = name;
  i.op = &def;
  return i;
}

class Guarding {
 public:
  Guarding(program::Program& program, Guards& guards) : program_(program), guards_(guards) {
    for (const program::NamedOutput& output : program.outputs) read_later_.insert(output.operand.buffer);
  }

  void run() {
    const std::size_t count = program_.instructions.size();
    before_.resize(count + 1);
    after_.resize(count + 1);
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) guard(static_cast<program::BufferId>(b));
    std::vector<program::Instruction> all;
    for (std::size_t i = 0; i < count; ++i) {
      // What other streams did with the bytes before is over when the instruction starts, and what they do with them
      // afterwards follows its event: guards belong to that span.
      program::Instruction& own = program_.instructions[i];
      if (!before_[i].empty()) before_[i].front().waits = own.waits;
      if (!after_[i].empty()) std::swap(after_[i].back().records, own.records);
      for (program::Instruction& extra : before_[i]) all.push_back(std::move(extra));
      all.push_back(std::move(program_.instructions[i]));
      for (program::Instruction& extra : after_[i]) all.push_back(std::move(extra));
    }
    program_.instructions = std::move(all);
    for (program::Buffer& b : program_.buffers)
      if (b.tier == 0) b.offset *= 2;
    program_.state_bytes *= 2;
    program_.arena_bytes = 2 * program_.arena_bytes + kCanary;
  }

 private:
  bool on_compute_stream(std::int32_t i) const {
    return program_.instructions[static_cast<std::size_t>(i)].stream == 0;
  }

  void guard(program::BufferId id) {
    const program::Buffer& b = program_.buffers[static_cast<std::size_t>(id)];
    if (b.tier != 0 || b.bytes == 0 || b.state == program::kStaging || program_.instructions.empty()) return;
    const bool persistent = b.state != program::kNone && (b.first == program::kNone || is_persistent(b));
    if (!persistent && (b.first == program::kNone || b.last == program::kNone)) return;
    const std::int32_t first = persistent ? 0 : b.first;
    const std::int32_t last = persistent ? static_cast<std::int32_t>(program_.instructions.size()) - 1 : b.last;
    // Instructions of other streams are not ordered by where they stand.
    if (!on_compute_stream(first) || !on_compute_stream(last)) return;
    const program::Operand behind{id, {DType::u8, {static_cast<std::int64_t>(kCanary)}}, b.bytes};
    program::Instruction write = launch(write_canary(), "canary of " + b.name);
    write.outputs = {behind};
    before_[static_cast<std::size_t>(first)].push_back(std::move(write));
    program::Instruction check = launch(check_canary(), "canary of " + b.name);
    check.inputs = {behind};
    after_[static_cast<std::size_t>(last)].push_back(std::move(check));
    ++guards_.canaries;
    if (persistent || b.state != program::kNone || read_later_.contains(id)) return;
    program::Instruction spoil = launch(poison(), "poison of " + b.name);
    spoil.outputs = {{id, {DType::u8, {static_cast<std::int64_t>(b.bytes)}}}};
    after_[static_cast<std::size_t>(last)].push_back(std::move(spoil));
    ++guards_.poisoned;
  }
  // Its place is in the layout that all programs share; a step-local state's is not.
  bool is_persistent(const program::Buffer& b) const { return b.offset < program_.state_bytes; }

  program::Program& program_;
  Guards& guards_;
  std::set<program::BufferId> read_later_;
  std::vector<std::vector<program::Instruction>> before_, after_;
};

}  // namespace

Guards guard_memory(compiler::Compiled& compiled) {
  Guards guards;
  for (compiler::Role& role : compiled.roles) {
    for (program::Program& program : role.programs) Guarding(program, guards).run();
    for (std::size_t& offset : role.layout.offsets) offset *= 2;
    role.layout.staging *= 2;
    role.layout.bytes *= 2;
    role.arena_bytes = 2 * role.arena_bytes + kCanary;
  }
  return guards;
}

}  // namespace trireme::testing
