#include "trireme/cli/plain_copies.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/device/arena.h"
#include "trireme/device/host_block.h"
#include "trireme/device/stream.h"
#include "trireme/device/tier_file.h"

namespace trireme::cli {

using program::Instruction;

std::size_t phase_of(ir::Phase phase) {
  if (phase == ir::Phase::forward) return 0;
  return phase == ir::Phase::update ? 2 : 1;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double PlainCopies::bytes(Instruction::Kind kind, std::size_t phase) const {
  double sum = 0;
  for (const Instruction& i : program_.instructions)
    if (i.kind == kind && phase_of(i.phase) == phase) sum += static_cast<double>(i.outputs.front().type.bytes());
  return sum;
}

double PlainCopies::rate(Instruction::Kind kind) {
  double sum = 0;
  for (std::size_t p = 0; p < kPhases.size(); ++p) sum += bytes(kind, p);
  double rate = 0;
  for (int round = 0; round < 3; ++round)  // the best of as many as of the sequential ones
    rate = std::max(rate, sum / seconds_of([&] {
                            for (std::size_t p = 0; p < kPhases.size(); ++p) run(kind, p);
                          }));
  return rate;
}

std::size_t PlainCopies::largest() const {
  std::size_t most = 0;
  for (const Instruction& i : program_.instructions)
    if (i.kind == Instruction::Kind::store || i.kind == Instruction::Kind::load)
      most = std::max(most, i.outputs.front().type.bytes());
  return most;
}

namespace {

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

// Between memory and a file, past the cache.
class DiskCopies final : public PlainCopies {
 public:
  DiskCopies(const program::Program& program, const std::filesystem::path& folder)
      : PlainCopies(program),
        folder_(folder),
        file_(folder, program.bytes_in(program::kDiskTier)),
        to_(largest()),
        from_(largest()) {
    // Blocks that were never written are not read from the disk.
    device::TierChannel channel(file_);
    constexpr std::size_t kBlock = std::size_t{1} << 20;
    const Pages block(kBlock);
    for (std::size_t at = 0; at < file_.bytes(); at += kBlock)
      channel.write(at, block.first(std::min(kBlock, file_.bytes() - at)));
  }

  Rates sequential() override {
    constexpr std::size_t kBlock = std::size_t{32} << 20;
    constexpr std::size_t kBlocks = 16;
    const device::TierFile file(folder_, kBlock * kBlocks);
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
    Rates rates;
    for (int round = 0; round < 3; ++round) {
      rates.out = std::max(rates.out, all(true));
      rates.in = std::max(rates.in, all(false));
    }
    return rates;
  }

  double seconds(std::size_t phase) override {
    return seconds_of([&] {
      std::thread stores([&] { run(Instruction::Kind::store, phase); });
      run(Instruction::Kind::load, phase);
      stores.join();
    });
  }

 private:
  void run(Instruction::Kind kind, std::size_t phase) override {
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

  std::filesystem::path folder_;
  device::TierFile file_;
  Pages to_;
  Pages from_;
};

// Between a GPU's memory and the host's, over the link between them.
class LinkCopies final : public PlainCopies {
 public:
  explicit LinkCopies(const program::Program& program)
      : PlainCopies(program),
        block_(std::max(largest(), kBlock)),
        device_(2 * block_, program.device),
        host_(program.device, 2 * block_),
        streams_(device::make_streams(program.device, {.streams = 2})) {}

  Rates sequential() override {
    const auto all = [&](bool out) {
      constexpr int kBlocks = 16;
      const double seconds = seconds_of([&] {
        for (int b = 0; b < kBlocks; ++b) copy(out, kBlock);
        streams_->synchronize();
      });
      return static_cast<double>(kBlock) * kBlocks / seconds;
    };
    Rates rates;
    for (int round = 0; round < 3; ++round) {
      rates.out = std::max(rates.out, all(true));
      rates.in = std::max(rates.in, all(false));
    }
    return rates;
  }

  double seconds(std::size_t phase) override {
    return seconds_of([&] {
      for (const Instruction& i : program_.instructions)
        if (phase_of(i.phase) == phase && (i.kind == Instruction::Kind::store || i.kind == Instruction::Kind::load))
          copy(i.kind == Instruction::Kind::store, i.outputs.front().type.bytes());
      streams_->synchronize();
    });
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{256} << 20;

  void copy(bool out, std::size_t bytes) {
    if (out)
      streams_->copy(host_.data(), device_.data(), bytes, 0);
    else
      streams_->copy(device_.data() + block_, host_.data() + block_, bytes, 1);
  }

  void run(Instruction::Kind kind, std::size_t phase) override {
    for (const Instruction& i : program_.instructions)
      if (i.kind == kind && phase_of(i.phase) == phase)
        copy(kind == Instruction::Kind::store, i.outputs.front().type.bytes());
    streams_->synchronize();
  }

  std::size_t block_;
  device::Arena device_;
  device::HostBlock host_;
  std::unique_ptr<device::Streams> streams_;
};

}  // namespace

std::unique_ptr<PlainCopies> PlainCopies::of(const program::Program& program, const std::filesystem::path& folder) {
  if (program.bytes_in(program::kHostTier) > 0) return std::make_unique<LinkCopies>(program);
  return std::make_unique<DiskCopies>(program, folder);
}

}  // namespace trireme::cli
