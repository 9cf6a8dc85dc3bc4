#include <algorithm>
#include <cstring>

#include "trireme/core/error.h"
#include "trireme/device/group_kernel.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/program/print.h"
#include "trireme/runtime/executor.h"

// How a program runs on a device beside the CPU.
namespace trireme::runtime {

using program::Instruction;

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 16;  // bytes of an input that is worth a copy of its own
constexpr std::size_t kEarly = 256;                   // bytes of an output that comes by itself at the end of a run

// On their way to or from the disk, tensors pass through the host's memory in parts of at most this many bytes.
constexpr std::size_t kBounce = std::size_t{32} << 20;

// Images of a batch are more than one core copies in the time of a step.
void stage(std::span<const std::byte> from, std::byte* to, ThreadPool& pool) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  pool.run(static_cast<std::int64_t>((from.size() + kPiece - 1) / kPiece), [&](std::int64_t piece) {
    const std::size_t at = static_cast<std::size_t>(piece) * kPiece;
    std::memcpy(to + at, from.data() + at, std::min(kPiece, from.size() - at));
  });
}

// Forward, gradients, update: the two kinds of gradients take turns too often to be timed apart.
int part_of(const Instruction& instruction) {
  if (instruction.phase == ir::Phase::weight_gradient) return static_cast<int>(ir::Phase::input_gradient);
  return static_cast<int>(instruction.phase);
}

}  // namespace

// Also when the trace changes, which wants more points of time.
void Executor::prepare_queue() {
  const std::vector<Instruction>& instructions = program_.instructions;
  captured_.clear();
  marks_.clear();
  int part = -1;
  for (std::size_t i = 0; i < instructions.size() && trace_ == nullptr; ++i)
    if (instructions[i].stream == 0 && part != part_of(instructions[i])) {
      part = part_of(instructions[i]);
      marks_.push_back(i);
    }
  marks_.push_back(instructions.size());
  group_events_ = static_cast<std::size_t>(program_.events());
  queue_ =
      device::make_queue(program_.device, {.marks = trace_ == nullptr ? marks_.size() : 2 * instructions.size() + 1,
                                           .lanes = static_cast<std::size_t>(program_.streams()),
                                           .events = group_events_ + comm::DeviceGroup::Lane::kEvents,
                                           .yielding = program::kGradientStream});
  if (staging_) return;
  find_groups();
  prepare_disk();

  std::size_t bytes = 0;
  const auto place = [&](std::size_t size) {
    const std::size_t at = bytes;
    bytes += program::aligned(size);
    return at;
  };
  std::vector<std::pair<std::size_t, std::size_t>> inputs;  // instruction, offset
  for (std::size_t i = 0; i < instructions.size(); ++i)
    if (instructions[i].kind == Instruction::Kind::input)
      inputs.emplace_back(i, place(instructions[i].outputs.front().type.bytes()));
  std::vector<std::pair<std::size_t, std::size_t>> outputs;
  for (std::size_t o = 0; o < program_.outputs.size(); ++o)
    if (const std::size_t size = program_.outputs[o].operand.type.bytes(); size <= kEarly)
      outputs.emplace_back(o, place(size));
  staging_ = std::make_unique<device::HostBlock>(program_.device, bytes);
  for (const auto& [i, offset] : inputs) prepared_[i].staged = staging_->data() + offset;
  for (std::size_t i = 0; i < instructions.size() && instructions[i].kind == Instruction::Kind::input; ++i)
    prepared_[i].ahead = instructions[i].outputs.front().type.bytes() > kLarge && lane_of(i) == 0;
  early_outputs_.assign(program_.outputs.size(), nullptr);
  for (const auto& [o, offset] : outputs) early_outputs_[o] = staging_->data() + offset;
  fetched_.resize(program_.outputs.size());
}

void Executor::prepare_disk() {
  disk_parts_.resize(prepared_.size());
  host_calls_.resize(prepared_.size());
  bounces_.resize(static_cast<std::size_t>(program_.streams()));
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    host_calls_[i] = {this, i};
    if (!on_disk(i)) continue;
    const bool stores = instruction.kind == Instruction::Kind::store;
    const program::Operand& there = stores ? instruction.outputs.front() : instruction.inputs.front();
    auto& bounce = bounces_[lane_of(i)];
    if (!bounce) bounce = std::make_unique<device::HostBlock>(program_.device, kBounce);
    const std::size_t bytes = program::aligned(there.type.bytes(), program::kPage);
    for (std::size_t at = 0; at < bytes; at += kBounce)
      disk_parts_[i].push_back(
          {this, i, prepared_[i].tier_offset + at, {bounce->data(), std::min(kBounce, bytes - at)}});
  }
}

void Executor::find_groups() {
  together_.assign(prepared_.size(), 1);
  for (const program::LaunchGroup& group : program_.launch_groups) {
    std::fill(together_.begin() + group.first, together_.begin() + group.last, 0);
    together_[static_cast<std::size_t>(group.first)] = static_cast<std::size_t>(group.last - group.first);
    for (auto i = static_cast<std::size_t>(group.first); i < static_cast<std::size_t>(group.last); ++i)
      if (prepared_[i].kernel != nullptr && dynamic_cast<device::GroupKernel*>(prepared_[i].kernel) == nullptr)
        fail("the kernel of {} cannot be launched together with others", program::describe(program_, i));
  }
}

// What is bound is read where it lies, if it is large and the device can. A captured copy has one address for good.
const std::byte* Executor::host_source(std::size_t i) const {
  const Prepared& p = prepared_[i];
  return p.ahead && queue_->reads(p.bound) ? p.bound : p.staged;
}

void Executor::copy_ahead() {
  for (std::size_t i = 0; i < prepared_.size(); ++i)
    if (prepared_[i].ahead)
      queue_->copy(prepared_[i].outputs.front(), host_source(i), program_.instructions[i].outputs.front().type.bytes());
}

// What must be so before the first instruction of a run, since a replay asks no more.
void Executor::make_ready() {
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    const Prepared& p = prepared_[i];
    if (p.staged != nullptr && host_source(i) == p.staged)
      stage({p.bound, program_.instructions[i].outputs.front().type.bytes()}, p.staged, pool_);
    if (held_ != nullptr)
      for (const ir::StateId state : p.overwrites) held_->wait(state);
  }
}

void Executor::issue(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  const std::size_t lane = lane_of(i);
  await(i);
  switch (instruction.kind) {
    case Instruction::Kind::input:
      if (capturing_ != nullptr && p.ahead) break;
      queue_->copy(p.outputs.front(), host_source(i), instruction.outputs.front().type.bytes(), lane);
      break;
    case Instruction::Kind::copy:
      queue_->copy(p.outputs.front(), p.inputs.front(), instruction.outputs.front().type.bytes(), lane);
      break;
    case Instruction::Kind::store:
    case Instruction::Kind::load: issue_move(i); break;
    case Instruction::Kind::collective: issue_collective(i); break;
    case Instruction::Kind::launch:
      if (instruction.on_host) {
        const auto call = [](void* context) {
          const HostCall& c = *static_cast<const HostCall*>(context);
          c.executor->launch_on_host(c.instruction);
        };
        queue_->call(call, &host_calls_[i], lane);
        break;
      }
      p.kernel->launch({p.inputs, p.outputs, p.workspace, nullptr, queue_->native(lane)});
      break;
    default: fail("{} is not done on a {} yet", program::kind_of(instruction), device::name_of(program_.device));
  }
  announce(i);
}

void Executor::issue_collective(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  const comm::DeviceGroup::Lane lane{*queue_, lane_of(i), group_events_};
  const comm::Options options{.algorithm = ranks_->algorithm(), .scratch = {}, .name = instruction.name};
  const DType dtype = instruction.inputs.front().type.dtype;
  if (instruction.op->name == ops::kAllReduce) {
    for (const Copy& copy : p.copies) queue_->copy(copy.to, copy.from, copy.bytes, lane.lane);
    const bool max = instruction.attributes.text("reduce") == "max";
    p.device_group->all_reduce(p.segments, dtype, max ? comm::Reduce::max : comm::Reduce::sum, options, lane);
  } else if (instruction.op->name == ops::kReduceScatter) {
    p.device_group->reduce_scatter(p.cuts, dtype, options, lane);
  } else if (instruction.op->name == ops::kAllGather) {
    p.device_group->all_gather(p.cuts, dtype, options, lane);
  } else {
    std::vector<comm::DeviceGroup::Exchange> tensors;
    for (std::size_t o = 0; o < p.inputs.size(); ++o)
      tensors.push_back({static_cast<const std::byte*>(p.inputs[o]), static_cast<std::byte*>(p.outputs[o]),
                         instruction.inputs[o].type.bytes()});
    p.device_group->all_to_all(tensors, lane);
  }
}

void Executor::await(std::size_t i) {
  // What comes from before a captured region is waited for before it is replayed.
  for (const std::int32_t event : program_.instructions[i].waits)
    if (recorded_here(event)) queue_->wait(static_cast<std::size_t>(event), lane_of(i));
}

void Executor::announce(std::size_t i) {
  if (const std::int32_t event = program_.instructions[i].records; event != program::kNone)
    queue_->record(static_cast<std::size_t>(event), lane_of(i));
}

void Executor::issue_move(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  const std::size_t lane = lane_of(i);
  if (disk_parts_[i].empty()) {
    queue_->copy(p.outputs.front(), p.inputs.front(), instruction.outputs.front().type.bytes(), lane);
    return;
  }
  const bool stores = instruction.kind == Instruction::Kind::store;
  std::size_t at = 0;
  for (DiskPart& part : disk_parts_[i]) {
    if (stores)
      queue_->copy(part.bytes.data(), static_cast<const std::byte*>(p.inputs.front()) + at, part.bytes.size(), lane);
    queue_->call([](void* context) { pass_disk(*static_cast<const DiskPart*>(context)); }, &part, lane);
    if (!stores)
      queue_->copy(static_cast<std::byte*>(p.outputs.front()) + at, part.bytes.data(), part.bytes.size(), lane);
    at += part.bytes.size();
  }
}

// On a thread of the device's.
void Executor::pass_disk(const DiskPart& part) {
  Executor& self = *part.executor;
  if (self.failed_.load(std::memory_order_acquire)) return;
  try {
    device::TierChannel& channel = *self.channels_[self.lane_of(part.instruction)];
    if (self.program_.instructions[part.instruction].kind == Instruction::Kind::store)
      channel.write(part.offset, part.bytes);
    else
      channel.read(part.offset, part.bytes);
  } catch (...) {
    self.record_failure(part.instruction);
  }
}

// On a thread of the device's, one at a time: they have one lane. Nobody else has work for the rank's threads
// meanwhile, since the rank itself waits for the device, or hands it more to do.
void Executor::launch_on_host(std::size_t i) {
  if (failed_.load(std::memory_order_acquire)) return;
  const Prepared& p = prepared_[i];
  const auto begin = Trace::Clock::now();
  try {
    p.kernel->launch({p.inputs, p.outputs, p.workspace, &pool_, nullptr});
  } catch (...) {
    record_failure(i);
  }
  host_seconds_ += std::chrono::duration<double>(Trace::Clock::now() - begin).count();
}

void Executor::issue_group(std::size_t first) {
  std::vector<device::GroupKernel*> members;
  std::vector<device::Launch> launches;
  std::vector<device::Queue::Copy> copies;
  await(first);
  for (std::size_t i = first; i < first + together_[first]; ++i) {
    const Prepared& p = prepared_[i];
    prepare_launch(i);
    if (program_.instructions[i].kind == Instruction::Kind::copy) {
      copies.push_back({p.outputs.front(), p.inputs.front(), program_.instructions[i].outputs.front().type.bytes()});
      continue;
    }
    members.push_back(static_cast<device::GroupKernel*>(p.kernel));
    launches.push_back({p.inputs, p.outputs, p.workspace, nullptr, queue_->native(lane_of(first))});
  }
  if (copies.empty())
    members.front()->launch_group(members, launches);
  else
    queue_->copy_all(copies, lane_of(first));
  for (std::size_t i = first; i < first + together_[first]; ++i) announce(i);
}

void Executor::issue(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    try {
      const auto mark = std::find(marks_.begin(), marks_.end(), i);
      if (mark != marks_.end()) queue_->mark(static_cast<std::size_t>(mark - marks_.begin()));
      if (trace_ != nullptr) {
        await(i);  // waiting is no part of it
        queue_->mark(2 * i, lane_of(i));
      }
      if (together_[i] == 1)
        execute(i);
      else if (together_[i] > 1)
        issue_group(i);
      if (trace_ != nullptr) queue_->mark(2 * i + 1, lane_of(i));
    } catch (...) {
      record_failure(i);
      std::rethrow_exception(failure_);
    }
  }
}

void Executor::issue_outputs() {
  for (std::size_t o = 0; o < program_.outputs.size(); ++o) {
    const program::Operand& operand = program_.outputs[o].operand;
    if (early_outputs_[o] != nullptr)
      queue_->copy(const_cast<std::byte*>(early_outputs_[o]),
                   arena_.data() + program_.buffers[static_cast<std::size_t>(operand.buffer)].offset,
                   operand.type.bytes());
  }
  queue_->mark(trace_ == nullptr ? marks_.size() - 1 : 2 * prepared_.size());
}

void Executor::read_times() {
  phase_seconds_ = {};
  wait_seconds_ = {};
  exposed_comm_ = 0;
  const auto part = [&](std::size_t i) -> double& {
    return phase_seconds_[static_cast<std::size_t>(part_of(program_.instructions[i]))];
  };
  for (std::size_t m = 0; m + 1 < marks_.size(); ++m) part(marks_[m]) += queue_->seconds(m, m + 1);
  if (trace_ == nullptr) return;
  const auto at = [end = Trace::Clock::now(), last = 2 * prepared_.size(), this](std::size_t m) {
    const std::chrono::duration<double> before(queue_->seconds(m, last));
    return end - std::chrono::duration_cast<Trace::Clock::duration>(before);
  };
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    trace_->record({prepared_[i].label, program_.instructions[i].stream, at(2 * i), at(2 * i + 1)});
    if (program_.instructions[i].stream == 0) part(i) += queue_->seconds(2 * i, 2 * i + 1);
  }
}

std::vector<std::byte> Executor::on_host(const void* data, std::size_t bytes) const {
  queue_->synchronize();
  std::vector<std::byte> copy(bytes);
  arena_.read(static_cast<std::size_t>(static_cast<const std::byte*>(data) - arena_.data()), copy);
  return copy;
}

}  // namespace trireme::runtime
