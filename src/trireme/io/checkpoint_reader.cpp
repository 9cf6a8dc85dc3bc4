#include "trireme/io/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/mapped_file.h"
#include "trireme/core/text.h"
#include "trireme/io/checksum.h"
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

// Copies a row-major box into its place in a row-major whole, run by run.
void place_slice(std::span<const std::byte> from, const Shape& start, const Shape& extent, const Shape& whole,
                 std::size_t element, std::byte* to) {
  // Trailing dimensions that the slice has whole are one run with the dimension before them.
  int run = whole.rank();
  std::size_t run_bytes = element;
  while (run > 0) {
    --run;
    run_bytes *= static_cast<std::size_t>(extent[run]);
    if (extent[run] != whole[run]) break;
  }
  const std::int64_t runs = extent.elements(0, run);
  for (std::int64_t r = 0; r < runs; ++r) {
    std::int64_t rest = r;
    std::int64_t offset = run < whole.rank() ? start[run] * whole.elements(run + 1, whole.rank()) : 0;
    for (int d = run - 1; d >= 0; --d) {
      offset += (start[d] + rest % extent[d]) * whole.elements(d + 1, whole.rank());
      rest /= extent[d];
    }
    std::memcpy(to + static_cast<std::size_t>(offset) * element, from.data() + static_cast<std::size_t>(r) * run_bytes,
                run_bytes);
  }
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
      const SafetensorsFile::Tensor& found = file.at(tensor.name);
      if (found.type != expected)
        refuse("{}: tensor {} is {}, the manifest says {}", file.path(), for_message(tensor.name), found.type.str(),
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

std::span<const std::byte> CheckpointReader::bytes(const CheckpointTensor& tensor, const CheckpointSlice& slice) const {
  const SafetensorsFile& file = files_.at(slice.file);
  return file.bytes(file.at(tensor.name));
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
  TRI_CHECK(out.size() == tensor.type.bytes(), "{} bytes for {}", out.size(), tensor.type.str());
  for (const CheckpointSlice& slice : tensor.slices) {
    if (!verified_) check_sum(tensor, slice);
    if (slice.extent.elements() > 0)
      place_slice(bytes(tensor, slice), slice.start, slice.extent, sliced_shape(slice, tensor.type.shape),
                  size_of(tensor.type.dtype), out.data());
    release(tensor, slice);
  }
}

void CheckpointReader::release(const CheckpointTensor& tensor, const CheckpointSlice& slice) const {
  const SafetensorsFile& file = files_.at(slice.file);
  file.release(file.at(tensor.name), 0, slice.extent.elements());
}

}  // namespace trireme::io
