#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>

#include "trireme/device/tier_file.h"
#include "trireme/train/config.h"

namespace trireme::train {

// Where a run keeps what it offloads: memory.offload_dir, or else the run folder; before there is one, the nearest
// folder above it.
std::filesystem::path offload_folder(const Config& config, const std::filesystem::path& run);

// Bytes of a tier file at any offset and of any length, for readers and writers of state other than the programs. Any
// thread may call it.
class TierStates {
 public:
  // `file` must outlive it.
  explicit TierStates(const device::TierFile& file);

  void read(std::size_t offset, std::span<std::byte> out);
  void write(std::size_t offset, std::span<const std::byte> bytes);

 private:
  struct Free {
    void operator()(std::byte* pages) const;
  };

  std::mutex mutex_;
  device::TierChannel channel_;
  std::unique_ptr<std::byte, Free> pages_;  // transfers are of whole pages
};

}  // namespace trireme::train
