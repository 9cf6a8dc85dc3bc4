#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/shape.h"

namespace trireme::io {

// What a checkpoint folder holds: manifest.json describes every saved tensor by its global shape and the slices of it
// that lie in safetensors files next to it. A rank writes the slices it owns into a file of its own; a reader puts
// any set of slices that tile a tensor together again, so a run may go on with other ranks than it began with.
struct CheckpointSlice {
  std::string file;  // where slice_entry names it
  Shape start;       // its first element in the tensor, or in its rows (Shape::as_rows) if it has two numbers
  Shape extent;
  std::uint64_t checksum = 0;  // of the slice's bytes
  int number = 0;              // among the file's slices of the tensor
};

// A slice's name in its file: the tensor's, and a number behind it for all but the first.
std::string slice_entry(const std::string& tensor, int number);

struct CheckpointTensor {
  std::string name;
  TensorType type;   // the whole tensor
  std::string role;  // what it is for: weights, optimizer, statistics, scalars
  std::vector<CheckpointSlice> slices;
};

// The shape in which a slice of a tensor is described.
inline Shape sliced_shape(const CheckpointSlice& slice, const Shape& tensor) {
  return slice.start.rank() == tensor.rank() ? tensor : tensor.as_rows();
}

struct CheckpointFile {
  std::uint64_t bytes = 0;
  std::uint64_t header = 0;  // checksum of the bytes before the data: the length and the header
};

struct CheckpointManifest {
  std::int64_t step = 0;  // updates done
  // Where the data stands: the next sample is number `samples` of this order.
  std::int64_t samples = 0;
  std::string order;
  // Random numbers are functions of (seed, site, step, row, element): seed and step are all the state there is.
  std::int64_t seed = 0;
  std::string config;      // the resolved configuration, as TOML
  std::string algorithms;  // that a GPU's libraries were measured to be fastest by, as text; empty: none were
  std::map<std::string, CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;  // by name, once read back
};

// What is written; formats from the oldest on are read.
//   4  a slice of any run may be stored without its zeros (packed_zeros.h)
//   3  a file may hold several slices of a tensor (`number`), and slices may be some of its rows; `algorithms`
//   2  slices with checksums. The latest programs that wrote it wrote all of 3.
//   1  one file, without checksums and without where the data stands: it cannot be resumed
inline constexpr std::int64_t kCheckpointFormat = 4;
inline constexpr std::int64_t kOldestCheckpointFormat = 2;
inline constexpr std::string_view kManifestFile = "manifest.json";

// The manifest as JSON, one line per tensor, ending in a checksum of all that precedes it.
std::string manifest_text(const CheckpointManifest& manifest);

// Reads it back. Refuses, naming what is wrong: a checksum that does not match, another format, a missing or malformed
// entry, a file name that leads out of the folder, and slices that do not tile their tensor (out of range, overlapping,
// or with a gap).
CheckpointManifest parse_manifest(std::string_view text);
CheckpointManifest read_manifest(const std::filesystem::path& folder);

// Files and tensors alone, of which the slices need not be all: what one of several processes has written.
std::string fragment_text(const CheckpointManifest& manifest);
CheckpointManifest parse_fragment(std::string_view text);

}  // namespace trireme::io
