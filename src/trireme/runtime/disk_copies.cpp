#include "trireme/runtime/disk_copies.h"

#include <algorithm>

#include "trireme/device/host_block.h"

namespace trireme::runtime {

using program::Instruction;
using program::Operand;

namespace {

std::size_t bytes_moved(const Instruction& instruction) {
  return program::aligned(instruction.outputs.front().type.bytes(), program::kPage);
}

std::size_t channel_of(const Instruction& instruction) { return static_cast<std::size_t>(instruction.stream); }

// By stream: a channel where it copies to or from the disk.
std::vector<std::unique_ptr<device::TierChannel>> channels_of(const DiskCopies::Site& site) {
  std::vector<std::unique_ptr<device::TierChannel>> channels(static_cast<std::size_t>(site.program.streams()));
  for (const Instruction& instruction : site.program.instructions)
    if (auto& channel = channels[channel_of(instruction)]; is_disk_copy(site.program, instruction) && !channel)
      channel = std::make_unique<device::TierChannel>(site.disk);
  return channels;
}

// From and to the CPU's memory.
class DirectCopies final : public DiskCopies {
 public:
  explicit DirectCopies(const Site& site)
      : site_(site), channels_(channels_of(site)), under_way_(channels_.size()), last_(channels_.size(), 0) {
    for (auto& copies : under_way_) copies.reserve(device::TierChannel::kAhead);
    for (std::size_t i = 0; i < site.program.instructions.size(); ++i)
      if (const Instruction& instruction = site.program.instructions[i]; is_disk_copy(site.program, instruction))
        last_[channel_of(instruction)] = i;
  }

  // A stream that has to wait sees the copies under way to their end first: what records the event may wait for them.
  // So it does before it writes where one of them still writes.
  void before_waiting(std::size_t i, device::Streams& streams) override {
    const Instruction& instruction = site_.program.instructions[i];
    const auto& others = under_way_[channel_of(instruction)];
    if (others.empty()) return;
    const bool waits = std::any_of(instruction.waits.begin(), instruction.waits.end(), [&](std::int32_t event) {
      return !streams.is_done(static_cast<std::size_t>(event));
    });
    const bool copies = is_disk_copy(site_.program, instruction);
    if (waits ||
        (copies && std::any_of(others.begin(), others.end(), [&](std::size_t other) { return same_target(i, other); })))
      end(channel_of(instruction), 0, streams);
  }

  bool start(std::size_t i, device::Streams&) override {
    const Instruction& instruction = site_.program.instructions[i];
    const Prepared& p = site_.prepared[i];
    device::TierChannel& channel = *channels_[channel_of(instruction)];
    if (instruction.kind == Instruction::Kind::store)
      channel.begin_write(i, p.tier_offset,
                          {static_cast<const std::byte*>(p.inputs.front()), bytes_moved(instruction)});
    else
      channel.begin_read(i, p.tier_offset, {static_cast<std::byte*>(p.outputs.front()), bytes_moved(instruction)});
    under_way_[channel_of(instruction)].push_back(i);
    return false;
  }

  void after(std::size_t i, device::Streams& streams) override {
    const std::size_t stream = channel_of(site_.program.instructions[i]);
    end(stream, i == last_[stream] ? 0 : device::TierChannel::kAhead - 1, streams);
  }

 private:
  bool same_target(std::size_t a, std::size_t b) const {
    const auto range = [&](std::size_t i) {
      const Operand& o = site_.program.instructions[i].outputs.front();
      const std::size_t begin = site_.program.buffers[static_cast<std::size_t>(o.buffer)].offset + o.offset;
      return std::pair(begin, begin + bytes_moved(site_.program.instructions[i]));
    };
    const auto [a_begin, a_end] = range(a);
    const auto [b_begin, b_end] = range(b);
    return a_begin < b_end && b_begin < a_end;
  }

  // Waits until at most `left` are under way.
  void end(std::size_t stream, std::size_t left, device::Streams& streams) {
    std::vector<std::size_t>& copies = under_way_[stream];
    while (copies.size() > left) {
      const device::TierChannel::Ended ended = channels_[stream]->wait();
      copies.erase(std::find(copies.begin(), copies.end(), ended.tag));
      site_.failure.guard(ended.tag, [&] {
        if (!ended.error.empty()) fail("{}", ended.error);
        site_.ended(ended.tag);
      });
      if (const std::int32_t event = site_.program.instructions[ended.tag].records; event != program::kNone)
        streams.record(static_cast<std::size_t>(event), stream);
    }
  }

  Site site_;
  std::vector<std::unique_ptr<device::TierChannel>> channels_;
  std::vector<std::vector<std::size_t>> under_way_;  // by stream: instructions
  std::vector<std::size_t> last_;                    // by stream: its last copy
};

// From and to an accelerator's memory, by way of the host's, in parts of at most this many bytes.
constexpr std::size_t kBounce = std::size_t{32} << 20;

class BouncedCopies final : public DiskCopies {
 public:
  explicit BouncedCopies(const Site& site)
      : site_(site), channels_(channels_of(site)), bounces_(channels_.size()), parts_(site.prepared.size()) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Instruction& instruction = site.program.instructions[i];
      if (!is_disk_copy(site.program, instruction)) continue;
      auto& bounce = bounces_[channel_of(instruction)];
      if (!bounce) bounce = std::make_unique<device::HostBlock>(site.program.device, kBounce);
      const std::size_t bytes = bytes_moved(instruction);
      for (std::size_t at = 0; at < bytes; at += kBounce)
        parts_[i].push_back(
            {this, i, site.prepared[i].tier_offset + at, {bounce->data(), std::min(kBounce, bytes - at)}});
    }
  }

  void before_waiting(std::size_t, device::Streams&) override {}
  bool start(std::size_t i, device::Streams& streams) override {
    const Instruction& instruction = site_.program.instructions[i];
    const Prepared& p = site_.prepared[i];
    const std::size_t stream = channel_of(instruction);
    const bool stores = instruction.kind == Instruction::Kind::store;
    std::size_t at = 0;
    for (Part& part : parts_[i]) {
      if (stores)
        streams.copy(part.bytes.data(), static_cast<const std::byte*>(p.inputs.front()) + at, part.bytes.size(),
                     stream);
      streams.call([](void* context) { pass(*static_cast<const Part*>(context)); }, &part, stream);
      if (!stores)
        streams.copy(static_cast<std::byte*>(p.outputs.front()) + at, part.bytes.data(), part.bytes.size(), stream);
      at += part.bytes.size();
    }
    return true;
  }
  void after(std::size_t, device::Streams&) override {}

 private:
  struct Part {
    BouncedCopies* copies = nullptr;
    std::size_t instruction = 0;
    std::size_t offset = 0;  // on the disk
    std::span<std::byte> bytes;
  };

  // On a thread of the accelerator's runtime.
  static void pass(const Part& part) {
    const Site& site = part.copies->site_;
    if (site.failure.happened()) return;
    site.failure.guard(part.instruction, [&] {
      const Instruction& instruction = site.program.instructions[part.instruction];
      device::TierChannel& channel = *part.copies->channels_[channel_of(instruction)];
      if (instruction.kind == Instruction::Kind::store)
        channel.write(part.offset, part.bytes);
      else
        channel.read(part.offset, part.bytes);
    });
  }

  Site site_;
  std::vector<std::unique_ptr<device::TierChannel>> channels_;
  std::vector<std::unique_ptr<device::HostBlock>> bounces_;  // by stream
  std::vector<std::vector<Part>> parts_;                     // by instruction
};

}  // namespace

bool is_disk_copy(const program::Program& program, const Instruction& instruction) {
  if (!instruction.moves()) return false;
  const Operand& there =
      instruction.kind == Instruction::Kind::store ? instruction.outputs.front() : instruction.inputs.front();
  return program.buffers[static_cast<std::size_t>(there.buffer)].tier == program::kDiskTier;
}

std::unique_ptr<DiskCopies> DiskCopies::on(const Site& site) {
  if (site.program.device == device::Kind::cpu) return std::make_unique<DirectCopies>(site);
  return std::make_unique<BouncedCopies>(site);
}

}  // namespace trireme::runtime
