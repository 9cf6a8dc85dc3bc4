#include "trireme/io/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/mapped_file.h"
#include "trireme/core/text.h"
#include "trireme/io/checksum.h"
#include "trireme/io/packed_zeros.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

// The bytes before the data: the header's length and the header.
std::span<const std::byte> head_of(std::span<const std::byte> file) {
  std::uint64_t length = 0;
  if (file.size() >= sizeof length) std::memcpy(&length, file.data(), sizeof length);
  return file.first(static_cast<std::size_t>(
      std::min<std::uint64_t>(file.size(), length > file.size() ? file.size() : length + sizeof length)));
}

// Copies what two row-major blocks of one tensor share, run by run.
void copy_shared(const ir::Slice& from_block, const std::byte* from, const ir::Slice& to_block, std::byte* to,
                 std::size_t element) {
  const int rank = from_block.extent.rank();
  ir::Slice shared = from_block;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t end =
        std::min(from_block.start[d] + from_block.extent[d], to_block.start[d] + to_block.extent[d]);
    shared.start[d] = std::max(from_block.start[d], to_block.start[d]);
    shared.extent[d] = std::max<std::int64_t>(0, end - shared.start[d]);
  }
  if (shared.empty()) return;
  // Trailing dimensions that both have whole are one run with the dimension before them.
  int run = rank;
  std::size_t run_bytes = element;
  while (run > 0) {
    --run;
    run_bytes *= static_cast<std::size_t>(shared.extent[run]);
    if (shared.extent[run] != from_block.extent[run] || shared.extent[run] != to_block.extent[run]) break;
  }
  const auto offset_in = [&](const ir::Slice& block, std::int64_t r) {
    std::int64_t offset = 0;
    for (int d = rank - 1; d >= 0; --d) {
      std::int64_t at = shared.start[d] - block.start[d];
      if (d < run) {
        at += r % shared.extent[d];
        r /= shared.extent[d];
      }
      offset += at * block.extent.elements(d + 1, rank);
    }
    return static_cast<std::size_t>(offset) * element;
  };
  const std::int64_t runs = shared.extent.elements(0, run);
  for (std::int64_t r = 0; r < runs; ++r)
    std::memcpy(to + offset_in(to_block, r), from + offset_in(from_block, r), run_bytes);
}

// Whether an entry of a file is a slice of floats without its zeros (packed_zeros.h).
bool is_packed(const TensorType& stored, const TensorType& slice) {
  return stored.dtype == DType::u8 && stored.shape.rank() == 1 && slice.dtype == DType::f32;
}

bool overlap(const ir::Slice& a, const ir::Slice& b) {
  for (int d = 0; d < a.extent.rank(); ++d)
    if (a.start[d] >= b.start[d] + b.extent[d] || b.start[d] >= a.start[d] + a.extent[d]) return false;
  return true;
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path folder)
    : folder_(std::move(folder)), manifest_(read_manifest(folder_)) {
  open_files();
  check_slices();
}

void CheckpointReader::open_files() {
  for (const auto& [name, expected] : manifest_.files) {
    const std::string path = (folder_ / name).string();
    {
      const MappedFile file(path);
      if (file.bytes().size() != expected.bytes)
        refuse("{}: has {} bytes, but {} were written", path, file.bytes().size(), expected.bytes);
      if (checksum(head_of(file.bytes())) != expected.header)
        refuse("{}: the checksum of its header does not match: it is damaged", path);
    }
    files_.emplace(name, path);
  }
}

void CheckpointReader::check_slices() const {
  std::map<std::string, std::size_t> used;
  for (const CheckpointTensor& tensor : manifest_.tensors)
    for (const CheckpointSlice& slice : tensor.slices) {
      const SafetensorsFile& file = files_.at(slice.file);
      const TensorType expected{tensor.type.dtype, slice.extent};
      const std::string entry = slice_entry(tensor.name, slice.number);
      const SafetensorsFile::Tensor& found = file.at(entry);
      if (found.type != expected && !is_packed(found.type, expected))
        refuse("{}: tensor {} is {}, the manifest says {}", file.path(), for_message(entry), found.type.str(),
               expected.str());
      ++used[slice.file];
    }
  for (const auto& [name, file] : files_)
    if (used[name] != file.tensors().size())
      refuse("{}: holds {} tensors, the manifest names {} of them", file.path(), file.tensors().size(), used[name]);
}

const CheckpointTensor* CheckpointReader::find(std::string_view name) const {
  const auto found = std::lower_bound(manifest_.tensors.begin(), manifest_.tensors.end(), name,
                                      [](const CheckpointTensor& t, std::string_view n) { return t.name < n; });
  return found == manifest_.tensors.end() || found->name != name ? nullptr : &*found;
}

const CheckpointTensor& CheckpointReader::at(std::string_view name) const {
  if (const CheckpointTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : manifest_.tensors) names.push_back(tensor.name);
  const auto close = nearest(name, names);
  refuse("{}: there is no tensor {}{}", folder_.string(), for_message(name),
         close ? fmt::format(" (the nearest is {})", for_message(*close)) : "");
}

const SafetensorsFile::Tensor& CheckpointReader::entry(const CheckpointTensor& tensor,
                                                       const CheckpointSlice& slice) const {
  return files_.at(slice.file).at(slice_entry(tensor.name, slice.number));
}

std::span<const std::byte> CheckpointReader::bytes(const CheckpointTensor& tensor, const CheckpointSlice& slice) const {
  return files_.at(slice.file).bytes(entry(tensor, slice));
}

void CheckpointReader::check_sum(const CheckpointTensor& tensor, const CheckpointSlice& slice) const {
  if (checksum(bytes(tensor, slice)) != slice.checksum)
    refuse("{}: tensor {}: its checksum does not match: it is damaged", (folder_ / slice.file).string(),
           for_message(tensor.name));
}

void CheckpointReader::verify(ThreadPool& pool) {
  std::vector<std::pair<const CheckpointTensor*, const CheckpointSlice*>> slices;
  for (const CheckpointTensor& tensor : manifest_.tensors)
    for (const CheckpointSlice& slice : tensor.slices) slices.emplace_back(&tensor, &slice);
  pool.run(static_cast<std::int64_t>(slices.size()), [&](std::int64_t i) {
    const auto& [tensor, slice] = slices[static_cast<std::size_t>(i)];
    check_sum(*tensor, *slice);
    release(*tensor, *slice);
  });
  verified_ = true;
}

void CheckpointReader::read(const CheckpointTensor& tensor, std::span<std::byte> out) const {
  read(tensor, ir::all_of(tensor.type.shape), out);
}

void CheckpointReader::read(const CheckpointTensor& tensor, const ir::Slice& wanted, std::span<std::byte> out) const {
  const TensorType block{tensor.type.dtype, wanted.extent};
  TRI_CHECK(out.size() == block.bytes(), "{} bytes for {} of {}", out.size(), block.str(), tensor.type.str());
  for (const CheckpointSlice& slice : tensor.slices) {
    const Shape& whole = tensor.type.shape;
    const ir::Slice stored{slice.start, slice.extent};
    const bool as_rows = stored.extent.rank() != wanted.extent.rank();
    const ir::Slice from = as_rows ? ir::in_rows(stored, whole) : stored;
    const ir::Slice to = as_rows ? ir::in_rows(wanted, whole) : wanted;
    if (!overlap(from, to)) continue;
    if (!verified_) check_sum(tensor, slice);
    const std::span<const std::byte> stored_bytes = bytes(tensor, slice);
    std::vector<float> dense;
    if (is_packed(entry(tensor, slice).type, {tensor.type.dtype, slice.extent})) {
      dense.resize(static_cast<std::size_t>(slice.extent.elements()));
      if (!unpack_zeros(stored_bytes, dense))
        refuse("{}: tensor {}: is not what {} elements are packed to", (folder_ / slice.file).string(),
               for_message(tensor.name), dense.size());
    }
    copy_shared(from, dense.empty() ? stored_bytes.data() : std::as_bytes(std::span(dense)).data(), to, out.data(),
                size_of(tensor.type.dtype));
    release(tensor, slice);
  }
}

void CheckpointReader::release(const CheckpointTensor& tensor, const CheckpointSlice& slice) const {
  const SafetensorsFile::Tensor& stored = entry(tensor, slice);
  files_.at(slice.file).release(stored, 0, stored.type.shape.elements());
}

}  // namespace trireme::io
