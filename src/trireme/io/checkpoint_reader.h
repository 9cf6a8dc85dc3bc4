#pragma once
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "trireme/core/thread_pool.h"
#include "trireme/io/checkpoint_manifest.h"
#include "trireme/io/safetensors.h"
#include "trireme/ir/slice.h"

namespace trireme::io {

// A checkpoint folder, read tensor by tensor whatever slices it was written in.
//
//   CheckpointReader checkpoint("run/checkpoints/step-00000100");
//   for (const CheckpointTensor& t : checkpoint.tensors()) keep(t.name, t.type);
//   checkpoint.read(checkpoint.at("wte.weight"), bytes);
//
// Opening checks the manifest (its own checksum, that slices tile their tensors) and every file's size and header, and
// that the files hold those slices and nothing else. What is wrong is refused, naming the file and, where there is one,
// the tensor. Data is checked by `verify`, or else when it is read.
class CheckpointReader {
 public:
  explicit CheckpointReader(std::filesystem::path folder);

  const CheckpointManifest& manifest() const { return manifest_; }
  const std::vector<CheckpointTensor>& tensors() const { return manifest_.tensors; }
  const CheckpointTensor* find(std::string_view name) const;
  // Refuses an unknown name, with the nearest one.
  const CheckpointTensor& at(std::string_view name) const;

  // Refuses data that does not have its checksum. Threads share the work by slices.
  void verify(ThreadPool& pool);
  // The whole tensor, row-major. `out` has its size.
  void read(const CheckpointTensor& tensor, std::span<std::byte> out) const;
  // A block of it, row-major; of its rows (Shape::as_rows) where the slice has fewer dimensions than the tensor. Only
  // the files' slices that overlap it are looked at.
  void read(const CheckpointTensor& tensor, const ir::Slice& slice, std::span<std::byte> out) const;

 private:
  void open_files();
  void check_slices() const;
  void check_sum(const CheckpointTensor& tensor, const CheckpointSlice& slice) const;
  // The file's pages need not stay in memory once they were looked at.
  void release(const CheckpointTensor& tensor, const CheckpointSlice& slice) const;
  const SafetensorsFile::Tensor& entry(const CheckpointTensor& tensor, const CheckpointSlice& slice) const;
  std::span<const std::byte> bytes(const CheckpointTensor& tensor, const CheckpointSlice& slice) const;

  std::filesystem::path folder_;
  CheckpointManifest manifest_;
  std::map<std::string, SafetensorsFile> files_;
  bool verified_ = false;
};

}  // namespace trireme::io
