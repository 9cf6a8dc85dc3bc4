#include "trireme/train/tier_states.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace trireme::train {
namespace {

constexpr std::size_t kPage = device::TierFile::kPage;
constexpr std::size_t kPages = std::size_t{1} << 20;

struct Pages {
  std::size_t begin;
  std::size_t bytes;
  std::size_t skip;  // of them, before what is wanted
  std::size_t take;
};

// The pages around the first bytes of [offset, offset + wanted), as many as fit.
Pages around(std::size_t offset, std::size_t wanted) {
  const std::size_t begin = offset / kPage * kPage;
  const std::size_t skip = offset - begin;
  const std::size_t take = std::min(wanted, kPages - skip);
  return {begin, (skip + take + kPage - 1) / kPage * kPage, skip, take};
}

}  // namespace

std::filesystem::path offload_folder(const Config& config, const std::filesystem::path& run) {
  if (!config.memory.offload_dir.empty()) return config.memory.offload_dir;
  if (run.empty()) return {};
  std::error_code unknown;
  std::filesystem::path folder = std::filesystem::absolute(run);
  while (!std::filesystem::is_directory(folder, unknown) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

void TierStates::Free::operator()(std::byte* pages) const { ::operator delete (pages, std::align_val_t{kPage}); }

TierStates::TierStates(const device::TierFile& file)
    : channel_(file), pages_(static_cast<std::byte*>(::operator new (kPages, std::align_val_t{kPage}))) {}

void TierStates::read(std::size_t offset, std::span<std::byte> out) {
  const std::lock_guard lock(mutex_);
  while (!out.empty()) {
    const Pages p = around(offset, out.size());
    channel_.read(p.begin, {pages_.get(), p.bytes});
    std::memcpy(out.data(), pages_.get() + p.skip, p.take);
    out = out.subspan(p.take);
    offset += p.take;
  }
}

void TierStates::write(std::size_t offset, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  while (!bytes.empty()) {
    const Pages p = around(offset, bytes.size());
    if (p.skip + p.take != p.bytes || p.skip != 0) channel_.read(p.begin, {pages_.get(), p.bytes});
    std::memcpy(pages_.get() + p.skip, bytes.data(), p.take);
    channel_.write(p.begin, {pages_.get(), p.bytes});
    bytes = bytes.subspan(p.take);
    offset += p.take;
  }
}

}  // namespace trireme::train
