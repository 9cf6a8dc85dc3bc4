#include "trireme/runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "trireme/core/error.h"
#include "trireme/device/group_kernel.h"
#include "trireme/program/print.h"

// What is prepared once, and what goes in and out.
namespace trireme::runtime {

using program::Instruction;
using program::Operand;

std::string kernel_signature(const Instruction& instruction) {
  std::string key = fmt::format("{}|{}|{}", instruction.op->name, instruction.accumulate, instruction.stream);
  for (const auto& [name, value] : instruction.attributes) key += "|" + name + "=" + ir::to_text(value);
  for (const Operand& o : instruction.inputs) key += "|" + o.type.str();
  key += "→";
  for (const Operand& o : instruction.outputs) key += "|" + o.type.str();
  return key;
}

Executor::Executor(const program::Program& program, device::Arena& arena, ThreadPool& pool, const Tiers& tiers,
                   ProcessGroups* ranks, device::Algorithms* algorithms)
    : program_(program),
      arena_(arena),
      tiers_(tiers),
      pool_(pool),
      ranks_(ranks),
      prepared_(program.instructions.size()),
      failure_(program),
      timeline_(program, program.device == device::Kind::cpu),
      collectives_(program, ranks),
      group_size_(prepared_.size(), 1) {
  check_memory();
  std::unordered_map<std::string, device::Kernel*> cache;
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    try {
      prepare(i, cache, algorithms);
    } catch (Error& e) {
      throw e.within("preparing " + program::describe(program, i));
    }
    host_calls_.push_back({this, i});
  }
  for (const program::LaunchGroup& group : program.launch_groups) {
    std::fill(group_size_.begin() + group.first, group_size_.begin() + group.last, 0);
    group_size_[static_cast<std::size_t>(group.first)] = static_cast<std::size_t>(group.last - group.first);
  }
  for (std::size_t i = 0; i < prepared_.size(); ++i)
    work_.push_back({[](void* self, std::size_t at) { static_cast<Executor*>(self)->run_from(at); }, this, i,
                     static_cast<std::size_t>(program.instructions[i].stream)});
  check_groups();
  staging_ = std::make_unique<Staging>(program, arena, program.device != device::Kind::cpu);
  make_streams();
  const bool to_disk = std::any_of(program.instructions.begin(), program.instructions.end(),
                                   [&](const Instruction& i) { return is_disk_copy(program, i); });
  const auto ended = [this](std::size_t i) {
    timeline_.end(i, *streams_);
    if (first_bad_ != nullptr) look_at(i);
  };
  if (to_disk) disk_ = DiskCopies::on({program, prepared_, *tiers.disk, failure_, ended});
}

Executor::~Executor() = default;

void Executor::check_memory() const {
  if (arena_.bytes() < program_.arena_bytes)
    fail("program '{}' needs an arena of {} bytes, got {}", program_.name, program_.arena_bytes, arena_.bytes());
  // Kernels were given workspaces for this many threads.
  if (pool_.threads() > program_.threads)
    fail("program '{}' is for {} threads, got {}", program_.name, program_.threads, pool_.threads());
  const auto check_tier = [&](int tier, std::size_t there) {
    if (const std::size_t needed = program_.bytes_in(tier); needed > there)
      fail("program '{}' needs {} bytes on the {}, got {}", program_.name, needed, program::tier_name(tier), there);
  };
  check_tier(program::kHostTier, tiers_.host == nullptr ? 0 : tiers_.host->bytes());
  check_tier(program::kDiskTier, tiers_.disk == nullptr ? 0 : tiers_.disk->bytes());
  if (program_.mesh.ranks() > 1 && (ranks_ == nullptr || ranks_->mesh() != program_.mesh))
    fail("program '{}' is for the ranks of '{}', got '{}'", program_.name, program_.mesh.str(),
         ranks_ == nullptr ? "" : ranks_->mesh().str());
  if (arena_.kind() != program_.device)
    fail("program '{}' is for the memory of a {}, got that of a {}", program_.name, device::name_of(program_.device),
         device::name_of(arena_.kind()));
}

// Also when the trace changes, which wants more timestamps.
void Executor::make_streams() {
  device::StreamShape shape{.streams = static_cast<std::size_t>(program_.streams()),
                            .events = static_cast<std::size_t>(program_.events()) + collectives_.events(),
                            .timestamps = timeline_.timestamps(),
                            .yielding = program::kGradientStream};
  shape.capacity.assign(shape.streams, 0);
  for (const Instruction& instruction : program_.instructions)
    ++shape.capacity[static_cast<std::size_t>(instruction.stream)];
  if (staging_->can_expect()) {
    ahead_stream_ = shape.streams++;
    ahead_event_ = shape.events++;
  }
  captured_.clear();
  streams_ = device::make_streams(program_.device, shape);
}

void Executor::prepare(std::size_t i, std::unordered_map<std::string, device::Kernel*>& cache,
                       device::Algorithms* algorithms) {
  const Instruction& instruction = program_.instructions[i];
  Prepared& p = prepared_[i];
  const auto place = [&](const Operand& o) -> std::byte* {
    if (o.buffer == program::kNone) return nullptr;
    const program::Buffer& buffer = program_.buffers[static_cast<std::size_t>(o.buffer)];
    std::size_t offset = buffer.offset + o.offset;
    if (o.place.axis != program::kNone)
      offset += o.place.stride * static_cast<std::size_t>(ranks_->coordinate()[static_cast<std::size_t>(o.place.axis)]);
    const std::size_t bytes = instruction.moves() ? buffer.moved(o.type.bytes()) : o.type.bytes();
    std::size_t& end = p.end_offset[static_cast<std::size_t>(buffer.tier)];
    end = std::max(end, offset + bytes);
    if (buffer.tier == 0) return arena_.data() + offset;
    if (buffer.tier == program::kHostTier) return tiers_.host->data() + offset;
    p.tier_offset = offset;
    return nullptr;
  };
  for (const Operand& o : instruction.inputs) p.inputs.push_back(place(o));
  for (const Operand& o : instruction.outputs) p.outputs.push_back(place(o));
  p.workspace = place(instruction.workspace);
  for (const Operand& o : instruction.outputs)
    if (const ir::StateId state = program_.buffers[static_cast<std::size_t>(o.buffer)].state; state >= 0)
      p.overwrites.push_back(state);
  if (instruction.communicates()) collectives_.prepare(i, p);
  if (instruction.kind != Instruction::Kind::launch) return;
  // The host's cores have nothing else to do while an accelerator works.
  const bool shares_cores = instruction.stream != 0 && program_.device == device::Kind::cpu;
  p.pool = shares_cores ? &own_thread_ : &pool_;
  device::Kernel*& known = cache[kernel_signature(instruction)];
  if (known == nullptr) {
    ir::Types inputs;
    ir::Types outputs;
    for (const Operand& o : instruction.inputs) inputs.push_back(o.type);
    for (const Operand& o : instruction.outputs) outputs.push_back(o.type);
    const ir::KernelSpec spec{inputs,    outputs, instruction.attributes, program_.threads, instruction.accumulate,
                              algorithms};
    const device::Kind kind = instruction.on_host ? device::Kind::cpu : program_.device;
    kernels_.push_back(instruction.op->kernels.at(kind).prepare(spec));
    known = kernels_.back().get();
  }
  p.kernel = known;
}

// That a kernel can do many launches at once was known from its definition alone.
void Executor::check_groups() const {
  for (const program::LaunchGroup& group : program_.launch_groups)
    for (auto i = static_cast<std::size_t>(group.first); i < static_cast<std::size_t>(group.last); ++i)
      if (prepared_[i].kernel != nullptr && dynamic_cast<device::GroupKernel*>(prepared_[i].kernel) == nullptr)
        fail("the kernel of {} cannot be launched together with others", program::describe(program_, i));
}

// The first of them from instruction `from` on; there may be several, as in a pipeline's chunks. None: their number.
std::size_t Executor::find_input(std::string_view name, int micro, std::size_t bytes, std::size_t from) const {
  for (std::size_t i = from; i < prepared_.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (instruction.kind != Instruction::Kind::input || instruction.name != name || instruction.micro != micro)
      continue;
    if (bytes != instruction.outputs.front().type.bytes())
      fail("input '{}' is {}, got {} bytes", name, instruction.outputs.front().type.str(), bytes);
    return i;
  }
  if (from == 0) fail("program '{}' has no input '{}' in micro-batch {}", program_.name, name, micro);
  return prepared_.size();
}

void Executor::bind(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step) {
  for (std::size_t i = find_input(name, micro, data.size(), 0); i < prepared_.size();
       i = find_input(name, micro, data.size(), i + 1))
    staging_->bind(i, data.data(), step);
}

void Executor::expect(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step) {
  if (!staging_->can_expect()) return;
  for (std::size_t i = find_input(name, micro, data.size(), 0); i < prepared_.size();
       i = find_input(name, micro, data.size(), i + 1))
    staging_->expect(i, data.data(), step, *streams_);
}

bool Executor::has_input(std::string_view name) const {
  return std::any_of(program_.instructions.begin(), program_.instructions.end(), [&](const Instruction& instruction) {
    return instruction.kind == Instruction::Kind::input && instruction.name == name;
  });
}

const TensorType& Executor::input_type(std::string_view name) const {
  for (const Instruction& instruction : program_.instructions)
    if (instruction.kind == Instruction::Kind::input && instruction.name == name)
      return instruction.outputs.front().type;
  fail("program '{}' has no input '{}'", program_.name, name);
}

std::span<const std::byte> Executor::output(std::string_view name, int micro) const {
  for (std::size_t o = 0; o < program_.outputs.size(); ++o)
    if (program_.outputs[o].name == name && program_.outputs[o].micro == micro) return staging_->output(o);
  fail("program '{}' has no output '{}' in micro-batch {}", program_.name, name, micro);
}

float Executor::scalar(std::string_view name, int micro) const {
  const auto bytes = output(name, micro);
  TRI_CHECK(bytes.size() == sizeof(float), "output '{}' is not an f32 scalar", name);
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void Executor::set_trace(Trace* trace) {
  timeline_.set_trace(trace);
  make_streams();
}

}  // namespace trireme::runtime
