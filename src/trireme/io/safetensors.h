#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/mapped_file.h"
#include "trireme/core/shape.h"

namespace trireme::io {

// A safetensors file, mapped read-only.
//
//   const SafetensorsFile file("model.safetensors");
//   file.read_f32(file.at("wte.weight"), weights);
//   for (const auto& tensor : file.tensors()) keep(tensor.name, tensor.type, file.bytes(tensor));
//
// Opening reads the header alone. It refuses a file that is not exactly what the format says: a header over 100 MB,
// bytes missing, left over, shared by two tensors or belonging to none, a size that is not that of dtype and shape, a
// name or key given twice, an unknown key, more than Shape::kMaxRank dimensions, a dtype other than F64 F32 F16 BF16
// I64 I32 U16 U8 I8 BOOL (read as bytes). Every refusal names the file and, where there is one, the tensor.
//
// Files that we wrote carry checksums in their metadata (of the header and of every tensor), which `metadata` does not
// show. With them a changed byte is found: in the header on opening, in a tensor by `verify`. Others' files have none;
// there only what breaks the rules above can be found.
//
// The file must not be shortened while it is open. Threads may read at the same time.
class SafetensorsFile {
 public:
  struct Tensor {
    std::string name;
    TensorType type;
    std::uint64_t offset = 0;  // in the file
    std::optional<std::uint64_t> checksum = {};
  };

  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return path_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }  // by name
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const Tensor* find(std::string_view name) const;
  // Refuses an unknown name, with the nearest one.
  const Tensor& at(std::string_view name) const;

  // The tensor's bytes: row-major, little-endian. The format promises no alignment.
  std::span<const std::byte> bytes(const Tensor& tensor) const;
  // Refuses a tensor whose bytes do not have their checksum; does nothing in a file without.
  void verify(const Tensor& tensor) const;
  // The values of a tensor of any float type. `out` has as many elements as the tensor.
  void read_f32(const Tensor& tensor, std::span<float> out) const;
  // Gives back the memory that reading elements [first, first + count) took; they can be read again.
  void release(const Tensor& tensor, std::int64_t first, std::int64_t count) const;

 private:
  void read_header();
  void take_checksums(std::string_view head);

  std::string path_;
  MappedFile file_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  TensorType type;
  std::span<const std::byte> bytes;
};

// A tensor whose bytes are made when it is its turn: `produce` hands them, in order and in pieces of any size, to what
// it is given.
struct TensorToStream {
  using Take = std::function<void(std::span<const std::byte>)>;
  std::string name;
  TensorType type;
  std::function<void(const Take&)> produce;
};

// Writes a file that appears whole or not at all (core/atomic_file.h), laid out as safetensors_layout.h says, with
// checksums.
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});
// The same file, with no more of it in memory at once than a tensor's producer holds.
void stream_safetensors(const std::string& path, std::span<const TensorToStream> tensors,
                        const std::map<std::string, std::string>& metadata = {});

}  // namespace trireme::io
