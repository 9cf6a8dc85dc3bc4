#include "trireme/program/launch_groups.h"

#include <algorithm>
#include <array>
#include <map>

#include "trireme/core/error.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

using ir::index;

constexpr std::size_t kSmall = std::size_t{1} << 16;  // bytes of a copy that takes longer to start than to do

const ir::KernelDef* kernel_of(const Program& program, const Instruction& instruction) {
  if (instruction.kind != Instruction::Kind::launch) return nullptr;
  const auto found = instruction.op->kernels.find(instruction.on_host ? device::Kind::cpu : program.device);
  return found == instruction.op->kernels.end() ? nullptr : &found->second;
}

bool can_group(const Program& program, const Instruction& instruction) {
  if (instruction.kind == Instruction::Kind::copy) return instruction.outputs.front().type.bytes() <= kSmall;
  const ir::KernelDef* kernel = kernel_of(program, instruction);
  return kernel != nullptr && kernel->groups;
}

// Of the kinds that are grouped, copies alone have no op.
bool same_launch(const Instruction& a, const Instruction& b) { return a.op == b.op && a.stream == b.stream; }

// Bytes of the tiers, as operands name them. Operands whose extents meet are kept together, so that few are compared.
class Bytes {
 public:
  explicit Bytes(const Program& program) : p_(program) {}

  bool meets(const Operand& o) const {
    const auto [begin, end] = extent(o);
    const Clusters& there = clusters_[index(tier(o))];
    auto it = there.upper_bound(begin);
    if (it != there.begin()) --it;
    for (; it != there.end() && it->first < end; ++it)
      if (std::any_of(it->second.operands.begin(), it->second.operands.end(),
                      [&](const Operand& other) { return touch(o, other); }))
        return true;
    return false;
  }

  void add(const Operand& o) {
    auto [begin, end] = extent(o);
    if (begin == end) return;
    Clusters& there = clusters_[index(tier(o))];
    std::vector<Operand> together;
    auto it = there.upper_bound(begin);
    if (it != there.begin()) --it;
    while (it != there.end() && it->first < end) {
      if (it->second.end <= begin) {
        ++it;
        continue;
      }
      begin = std::min(begin, it->first);
      end = std::max(end, it->second.end);
      together.insert(together.end(), it->second.operands.begin(), it->second.operands.end());
      it = there.erase(it);
    }
    const bool known = std::any_of(together.begin(), together.end(), [&](const Operand& other) {
      return base(o) == base(other) && o.place == other.place && o.type.bytes() == other.type.bytes();
    });
    if (!known) together.push_back(o);
    there.insert_or_assign(begin, Cluster{end, std::move(together)});
  }

 private:
  struct Cluster {
    std::size_t end;
    std::vector<Operand> operands;
  };
  using Clusters = std::map<std::size_t, Cluster>;

  int tier(const Operand& o) const { return p_.buffers[index(o.buffer)].tier; }
  std::size_t base(const Operand& o) const { return p_.buffers[index(o.buffer)].offset + o.offset; }
  std::pair<std::size_t, std::size_t> extent(const Operand& o) const { return {base(o), base(o) + o.extent()}; }

  // Slices with the same place move together from rank to rank; of others some rank's may meet.
  bool touch(const Operand& a, const Operand& b) const {
    const bool same = a.place == b.place;
    const std::size_t a_bytes = same ? a.type.bytes() : a.extent();
    const std::size_t b_bytes = same ? b.type.bytes() : b.extent();
    return base(a) < base(b) + b_bytes && base(b) < base(a) + a_bytes;
  }

  const Program& p_;
  std::array<Clusters, kTiers> clusters_;
};

// What the members of a group touch so far. Where the workspace of one is enough for all, those of others may lie over
// it, and nothing else may.
class Members {
 public:
  explicit Members(const Program& program) : p_(program), read_(program), written_(program), shared_(program) {}

  bool conflicts(const Instruction& instruction) const {
    const auto reads = [&](const Operand& o) { return o.buffer != kNone && (written_.meets(o) || shared_.meets(o)); };
    const auto writes = [&](const Operand& o) { return read_.meets(o) || written_.meets(o) || shared_.meets(o); };
    if (std::any_of(instruction.inputs.begin(), instruction.inputs.end(), reads) ||
        std::any_of(instruction.outputs.begin(), instruction.outputs.end(), writes))
      return true;
    const Operand& workspace = instruction.workspace;
    if (workspace.buffer == kNone) return false;
    return shares_workspace(instruction) ? read_.meets(workspace) || written_.meets(workspace) : writes(workspace);
  }

  void add(const Instruction& instruction) {
    for (const Operand& o : instruction.inputs)
      if (o.buffer != kNone) read_.add(o);
    for (const Operand& o : instruction.outputs) written_.add(o);
    if (instruction.workspace.buffer != kNone)
      (shares_workspace(instruction) ? shared_ : written_).add(instruction.workspace);
  }

 private:
  bool shares_workspace(const Instruction& instruction) const {
    const ir::KernelDef* kernel = kernel_of(p_, instruction);
    return kernel != nullptr && kernel->shares_workspace;
  }

  const Program& p_;
  Bytes read_;
  Bytes written_;
  Bytes shared_;  // workspaces
};

}  // namespace

void find_launch_groups(Program& program) {
  program.launch_groups.clear();
  if (program.device == device::Kind::cpu) return;
  const auto size = static_cast<std::int32_t>(program.instructions.size());
  for (std::int32_t first = 0; first < size;) {
    const Instruction& leader = program.instructions[index(first)];
    std::int32_t next = first + 1;
    if (can_group(program, leader)) {
      Members members(program);
      members.add(leader);
      for (; next < size; ++next) {
        const Instruction& instruction = program.instructions[index(next)];
        // The others would wait with one that waits.
        if (!can_group(program, instruction) || !same_launch(instruction, leader) || !instruction.waits.empty() ||
            members.conflicts(instruction))
          break;
        members.add(instruction);
      }
    }
    if (next - first > 1) program.launch_groups.push_back({first, next});
    first = next;
  }
}

void verify_launch_groups(const Program& program) {
  std::int32_t end = 0;
  for (const LaunchGroup& group : program.launch_groups) {
    if (group.first < end || group.last <= group.first || index(group.last) > program.instructions.size())
      fail("the launch group of instructions {} to {} is empty or overlaps the one before it", group.first,
           group.last - 1);
    end = group.last;
    const Instruction& leader = program.instructions[index(group.first)];
    Members members(program);
    for (std::int32_t i = group.first; i < group.last; ++i) {
      const Instruction& instruction = program.instructions[index(i)];
      if (!can_group(program, instruction) || !same_launch(instruction, leader))
        fail("{} cannot be launched together with {}", describe(program, index(i)),
             describe(program, index(group.first)));
      if (i > group.first && !instruction.waits.empty())
        fail("{} is launched together with {}, and waits for event {}", describe(program, index(i)),
             describe(program, index(group.first)), instruction.waits.front());
      if (members.conflicts(instruction))
        fail("{} touches what another instruction writes that is launched together with it, from {} on",
             describe(program, index(i)), describe(program, index(group.first)));
      members.add(instruction);
    }
  }
}

}  // namespace trireme::program
