#include "trireme/runtime/prepared.h"

#include <algorithm>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/device/group_kernel.h"
#include "trireme/program/print.h"

namespace trireme::runtime {

using program::Instruction;
using program::Operand;
using program::Program;

std::string kernel_signature(const Instruction& instruction) {
  std::string key = fmt::format("{}|{}|{}", instruction.op->name, instruction.accumulate, instruction.stream);
  for (const auto& [name, value] : instruction.attributes) key += "|" + name + "=" + ir::to_text(value);
  for (const Operand& o : instruction.inputs) key += "|" + o.type.str();
  key += "→";
  for (const Operand& o : instruction.outputs) key += "|" + o.type.str();
  return key;
}

namespace {

void check_site(const Program& program, const PreparedProgram::Site& site) {
  if (site.arena.bytes() < program.arena_bytes)
    fail("program '{}' needs an arena of {} bytes, got {}", program.name, program.arena_bytes, site.arena.bytes());
  // Kernels were given workspaces for this many threads.
  if (site.pool.threads() > program.threads)
    fail("program '{}' is for {} threads, got {}", program.name, program.threads, site.pool.threads());
  const auto check_tier = [&](int tier, std::size_t there) {
    if (const std::size_t needed = program.bytes_in(tier); needed > there)
      fail("program '{}' needs {} bytes on the {}, got {}", program.name, needed, program::tier_name(tier), there);
  };
  check_tier(program::kHostTier, site.tiers.host == nullptr ? 0 : site.tiers.host->bytes());
  check_tier(program::kDiskTier, site.tiers.disk == nullptr ? 0 : site.tiers.disk->bytes());
  if (program.mesh.ranks() > 1 && (site.ranks == nullptr || site.ranks->mesh() != program.mesh))
    fail("program '{}' is for the ranks of '{}', got '{}'", program.name, program.mesh.str(),
         site.ranks == nullptr ? "" : site.ranks->mesh().str());
  if (site.arena.kind() != program.device)
    fail("program '{}' is for the memory of a {}, got that of a {}", program.name, device::name_of(program.device),
         device::name_of(site.arena.kind()));
}

// Where everything that instruction i names lies in this rank's memory.
Prepared placed(const Program& program, const Instruction& instruction, const PreparedProgram::Site& site) {
  Prepared p;
  const auto place = [&](const Operand& o) -> std::byte* {
    if (o.buffer == program::kNone) return nullptr;
    const program::Buffer& buffer = program.buffers[static_cast<std::size_t>(o.buffer)];
    std::size_t offset = buffer.offset + o.offset;
    if (o.place.axis != program::kNone)
      offset +=
          o.place.stride * static_cast<std::size_t>(site.ranks->coordinate()[static_cast<std::size_t>(o.place.axis)]);
    const std::size_t bytes = instruction.moves() ? buffer.moved(o.type.bytes()) : o.type.bytes();
    std::size_t& end = p.end_offset[static_cast<std::size_t>(buffer.tier)];
    end = std::max(end, offset + bytes);
    if (buffer.tier == 0) return site.arena.data() + offset;
    if (buffer.tier == program::kHostTier) return site.tiers.host->data() + offset;
    p.tier_offset = offset;
    return nullptr;
  };
  for (const Operand& o : instruction.inputs) p.inputs.push_back(place(o));
  for (const Operand& o : instruction.outputs) p.outputs.push_back(place(o));
  p.workspace = place(instruction.workspace);
  for (const Operand& o : instruction.outputs)
    if (const ir::StateId state = program.buffers[static_cast<std::size_t>(o.buffer)].state; state >= 0)
      p.overwrites.push_back(state);
  return p;
}

}  // namespace

struct PreparedProgram::Kernels : std::unordered_map<std::string, device::Kernel*> {};

PreparedProgram::PreparedProgram(const Program& program, const Site& site) {
  check_site(program, site);
  Kernels kernels;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    try {
      prepare(program, i, site, kernels);
    } catch (Error& e) {
      throw e.within("preparing " + program::describe(program, i));
    }
  }
  group_launches(program);
}

void PreparedProgram::prepare(const Program& program, std::size_t i, const Site& site, Kernels& kernels) {
  const Instruction& instruction = program.instructions[i];
  Prepared& p = instructions_.emplace_back(placed(program, instruction, site));
  if (instruction.kind != Instruction::Kind::launch) return;
  // The host's cores have nothing else to do while an accelerator works.
  const bool shares_cores = instruction.stream != 0 && program.device == device::Kind::cpu;
  p.pool = shares_cores ? &own_thread_ : &site.pool;
  device::Kernel*& known = kernels[kernel_signature(instruction)];
  if (known == nullptr) {
    ir::Types inputs;
    ir::Types outputs;
    for (const Operand& o : instruction.inputs) inputs.push_back(o.type);
    for (const Operand& o : instruction.outputs) outputs.push_back(o.type);
    const ir::KernelSpec spec{inputs,         outputs, instruction.attributes, program.threads, instruction.accumulate,
                              site.algorithms};
    const device::Kind kind = instruction.on_host ? device::Kind::cpu : program.device;
    kernels_.push_back(instruction.op->kernels.at(kind).prepare(spec));
    known = kernels_.back().get();
  }
  p.kernel = known;
}

// That a kernel can do many launches at once was known from its definition alone.
void PreparedProgram::group_launches(const Program& program) {
  for (const program::LaunchGroup& group : program.launch_groups) {
    const auto first = static_cast<std::size_t>(group.first);
    const auto last = static_cast<std::size_t>(group.last);
    for (std::size_t i = first; i < last; ++i) {
      Prepared& p = instructions_[i];
      if (p.kernel != nullptr && dynamic_cast<device::GroupKernel*>(p.kernel) == nullptr)
        fail("the kernel of {} cannot be launched together with others", program::describe(program, i));
      p.launches = i == first ? last - first : 0;
    }
  }
}

}  // namespace trireme::runtime
