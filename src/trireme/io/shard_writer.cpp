#include "trireme/io/shard_writer.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/io/checksum.h"
#include "trireme/io/direct_file.h"
#include "trireme/io/packed_zeros.h"
#include "trireme/io/safetensors_layout.h"

namespace trireme::io {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Large enough for a disk to be at its best, small enough that copying and writing interleave.
constexpr std::size_t kBlock = std::size_t{1} << 20;
// Copied and summed in turn while it is in the cache.
constexpr std::size_t kWrittenPiece = std::size_t{64} << 10;

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

// Past the caches: nobody reads the copy but the disk, and the computation that runs meanwhile wants its cache lines.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;  // the pointers may be null
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % lanes;
  std::size_t i = std::min(bytes, misaligned == 0 ? 0 : lanes - misaligned);
  std::memcpy(to, from, i);
  for (; i + lanes <= bytes; i += lanes)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from) + i), d,
               reinterpret_cast<std::uint8_t*>(to) + i);
  std::memcpy(to + i, from + i, bytes - i);
}

// By tensor what packs it; nothing where it is stored as it is.
using Packers = std::vector<std::optional<ZeroPacker>>;

Packers packers_of(std::span<const ShardTensor> tensors) {
  Packers packers(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ShardTensor& t = tensors[i];
    if (!t.sparse || t.type.dtype != DType::f32) continue;
    ZeroPacker::Read read = t.read;
    if (!read)
      read = [bytes = t.bytes](std::size_t offset, std::span<std::byte> out) {
        std::memcpy(out.data(), bytes.data() + offset, out.size());
      };
    packers[i].emplace(static_cast<std::size_t>(t.extent.elements()), std::move(read));
    if (!packers[i]->smaller()) packers[i].reset();
  }
  return packers;
}

// As what a tensor stands in the file.
TensorType stored_type(const ShardTensor& tensor, const std::optional<ZeroPacker>& packer) {
  if (packer) return {DType::u8, {static_cast<std::int64_t>(packer->bytes())}};
  return {tensor.type.dtype, tensor.extent};
}

SafetensorsLayout layout_of(std::span<const ShardTensor> tensors, const Packers& packers) {
  std::vector<std::pair<std::string, TensorType>> types;
  types.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ShardTensor& t = tensors[i];
    const TensorType slice{t.type.dtype, t.extent};
    TRI_CHECK(t.read || t.bytes.size() == slice.bytes(), "{}: {} bytes for {}", t.name, t.bytes.size(), slice.str());
    types.emplace_back(slice_entry(t.name, t.number), stored_type(t, packers[i]));
  }
  return lay_out_safetensors(types);
}

// The file as a stream of bytes, cut into blocks that pass through a ring of staging.
class Shard {
 public:
  Shard(const std::string& path, std::span<const ShardTensor> tensors, std::span<std::byte> staging,
        const std::function<void(std::size_t)>& copied)
      : packers_(packers_of(tensors)),
        layout_(layout_of(tensors, packers_)),
        copied_(copied),
        file_(path, layout_.bytes) {
    block_ = std::min({kBlock, staging.size() / kStagingAlignment * kStagingAlignment,
                       rounded_up(static_cast<std::size_t>(layout_.bytes))});
    TRI_CHECK(block_ > 0, "staging of {} bytes", staging.size());
    slots_ = std::max<std::size_t>(1, staging.size() / block_);
    staging_ = staging;
    sums_.resize(tensors.size());
    sources_.push_back({std::as_bytes(std::span(layout_.head)), layout_.head.size(), {}});
    for (const std::size_t i : layout_.order) {
      const ShardTensor& t = tensors[i];
      Source source{t.bytes, stored_type(t, packers_[i]).bytes(), t.read};
      if (std::optional<ZeroPacker>& packer = packers_[i])
        source.read = [&packer](std::size_t offset, std::span<std::byte> out) { packer->read(offset, out); };
      sources_.push_back(std::move(source));
    }
  }

  void write() {
    const std::size_t blocks = (static_cast<std::size_t>(layout_.bytes) + block_ - 1) / block_;
    std::size_t filled = 0;
    for (std::size_t written = 0; written < blocks; ++written) {
      // Copies come before writes: a program may be waiting to overwrite what is not yet copied.
      while (filled < blocks && filled - written < slots_) fill(filled++);
      file_.write(std::uint64_t{written} * block_, slot(written));
    }
    file_.finish();
  }

  std::uint64_t bytes() const { return layout_.bytes; }
  std::uint64_t header() const { return checksum(layout_.head); }
  std::uint64_t sum(std::size_t tensor) const { return sums_[tensor]; }

 private:
  std::span<std::byte> slot(std::size_t block) const { return staging_.subspan(block % slots_ * block_, block_); }

  // The next block_ bytes of the stream.
  void fill(std::size_t block) {
    std::span<std::byte> room = slot(block);
    while (!room.empty() && source_ < sources_.size()) {
      const Source& source = sources_[source_];
      std::size_t count = std::min(source.size - taken_, room.size());
      if (source.read) {
        source.read(taken_, room.first(count));
        sum_.add(room.first(count));
      } else {
        count = std::min(count, kWrittenPiece);
        const std::span<const std::byte> piece = source.bytes.subspan(taken_, count);
        copy_past_cache(room.data(), piece.data(), count);
        if (source_ > 0) sum_.add(piece);
      }
      room = room.subspan(count);
      taken_ += count;
      if (taken_ == source.size) end_source();
    }
    std::fill(room.begin(), room.end(), std::byte{0});
    hwy::FlushStream();
  }

  void end_source() {
    if (source_ > 0) {
      const std::size_t tensor = layout_.order[source_ - 1];
      sums_[tensor] = sum_.take();
      if (copied_) copied_(tensor);
    }
    ++source_;
    taken_ = 0;
  }

  struct Source {
    std::span<const std::byte> bytes;
    std::size_t size;
    std::function<void(std::size_t, std::span<std::byte>)> read;  // instead of bytes; null: none
  };

  Packers packers_;
  SafetensorsLayout layout_;
  const std::function<void(std::size_t)>& copied_;
  DirectFile file_;
  std::span<std::byte> staging_;
  std::size_t block_ = 0;
  std::size_t slots_ = 1;
  std::vector<Source> sources_;  // the stream: the head, then the tensors
  std::size_t source_ = 0;       // the one being copied, and how much of it has been
  std::size_t taken_ = 0;
  Checksum sum_;
  std::vector<std::uint64_t> sums_;
};

}  // namespace

std::size_t whole_staging(std::uint64_t file_bytes) {
  const auto bytes = static_cast<std::size_t>(file_bytes);
  const std::size_t block = std::min(kBlock, rounded_up(bytes));
  return (bytes + block - 1) / block * block;
}

void write_shard(const std::filesystem::path& folder, const std::string& file, std::span<const ShardTensor> tensors,
                 std::span<std::byte> staging, const std::function<void(std::size_t)>& copied,
                 CheckpointManifest& manifest) {
  Shard shard((folder / file).string(), tensors, staging, copied);
  shard.write();
  manifest.files[file] = {shard.bytes(), shard.header()};
  std::unordered_map<std::string, std::size_t> known;
  for (const CheckpointTensor& t : manifest.tensors) known.emplace(t.name, known.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ShardTensor& t = tensors[i];
    const auto [at, added] = known.emplace(t.name, known.size());
    if (added) manifest.tensors.push_back({t.name, t.type, t.role, {}});
    manifest.tensors[at->second].slices.push_back({file, t.start, t.extent, shard.sum(i), t.number});
  }
}

}  // namespace trireme::io
