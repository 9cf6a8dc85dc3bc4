#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/core/shape.h"
#include "trireme/io/checkpoint_manifest.h"

namespace trireme::io {

// What one rank adds to a checkpoint: its slices of the global tensors.
struct ShardTensor {
  std::string name;
  TensorType type;  // the whole tensor
  std::string role;
  Shape start;
  Shape extent;
  std::span<const std::byte> bytes;  // the slice, row-major
  // Instead of `bytes`, where the slice is not in memory: gives some of it, from a byte on.
  std::function<void(std::size_t offset, std::span<std::byte> out)> read = {};
  int number = 0;       // of the slice among those of the same tensor in the file
  bool sparse = false;  // zero in many places: f32 is stored without zeros (packed_zeros.h) where that is less
};

// Writes the tensors to the safetensors file `folder`/`file`, by way of `staging`: bytes are copied there, then written
// while later ones are copied, as far as there is room. `copied(i)` is called as soon as tensor i has been copied: its
// bytes may change from then on. With `whole_staging` all copies are made before the first byte is
// written; with less, the copies go as fast as the disk does.
//
// Adds the file and the slices to the manifest. Everything is on the disk when it returns.
void write_shard(const std::filesystem::path& folder, const std::string& file, std::span<const ShardTensor> tensors,
                 std::span<std::byte> staging, const std::function<void(std::size_t)>& copied,
                 CheckpointManifest& manifest);

// What staging's address and size must be multiples of; also the least that will do.
inline constexpr std::size_t kStagingAlignment = 4096;
// Staging with which a file of this size can be copied before the disk has taken any of it.
std::size_t whole_staging(std::uint64_t file_bytes);

}  // namespace trireme::io
