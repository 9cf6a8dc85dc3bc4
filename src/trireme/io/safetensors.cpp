#include "trireme/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/checksum.h"
#include "trireme/io/safetensors_header.h"
#include "trireme/io/safetensors_layout.h"

namespace trireme::io {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian and mapped as they are");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

// Bytes of a tensor; nothing when they, or its extents, cannot be counted. Zero extents are left out of the product: a
// part of the shape must be countable too.
std::optional<std::uint64_t> count_bytes(const std::vector<std::uint64_t>& shape, DType dtype) {
  std::uint64_t product = size_of(dtype);
  bool empty = false;
  for (std::uint64_t extent : shape) {
    empty |= extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  if (product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return empty ? 0 : product;
}

SafetensorsFile::Tensor check(const SafetensorsHeader::Tensor& claim, std::uint64_t data_begin,
                              std::uint64_t data_bytes) {
  const auto dtype = dtype_of_safetensors(claim.dtype);
  if (!dtype)
    refuse("dtype {} is not supported (F64, F32, F16, BF16, I64, I32, U16, U8, I8, BOOL are)",
           for_message(claim.dtype));
  const auto bytes = count_bytes(claim.shape, *dtype);
  if (!bytes) refuse("shape [{}] is too large", fmt::join(claim.shape, ","));
  if (claim.begin > claim.end || claim.end > data_bytes)
    refuse("data_offsets [{},{}] do not lie in the {} bytes of data", claim.begin, claim.end, data_bytes);
  if (claim.end - claim.begin != *bytes)
    refuse("{}[{}] takes {} bytes, but data_offsets [{},{}] give {}", claim.dtype, fmt::join(claim.shape, ","), *bytes,
           claim.begin, claim.end, claim.end - claim.begin);
  Shape shape;
  for (std::uint64_t extent : claim.shape) shape.push_back(static_cast<std::int64_t>(extent));
  return {claim.name, TensorType{*dtype, shape}, data_begin + claim.begin};
}

// Every byte of the data belongs to exactly one tensor.
void check_cover(const std::vector<SafetensorsFile::Tensor>& tensors, std::uint64_t data_begin,
                 std::uint64_t data_end) {
  std::vector<const SafetensorsFile::Tensor*> order;
  order.reserve(tensors.size());
  for (const auto& tensor : tensors) order.push_back(&tensor);
  const auto end_of = [](const auto* t) { return t->offset + t->type.bytes(); };
  std::sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
    return std::pair(a->offset, end_of(a)) < std::pair(b->offset, end_of(b));
  });
  std::uint64_t covered = data_begin;
  const SafetensorsFile::Tensor* previous = nullptr;
  for (const auto* tensor : order) {
    if (tensor->offset < covered)
      refuse("tensor {}: overlaps tensor {}", for_message(tensor->name), for_message(previous->name));
    if (tensor->offset > covered)
      refuse("tensor {}: {} bytes before it belong to no tensor", for_message(tensor->name), tensor->offset - covered);
    covered = end_of(tensor);
    previous = tensor;
  }
  if (covered != data_end) refuse("{} bytes at the end belong to no tensor", data_end - covered);
}

template <class T>
void convert(std::span<const std::byte> bytes, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

// Two keys, so that no single changed byte makes a file pass for one without checksums.
constexpr std::string_view kMadeKey = "trireme.checksums";
constexpr std::string_view kMadeWith = "xxh3";
// Sixteen digits for every tensor, in the order of the file, then those of the header with zeros in place of this
// value.
constexpr std::string_view kSumsKey = "trireme.xxh3";
constexpr std::size_t kSumDigits = 16;

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)), file_(path_) {
  try {
    read_header();
  } catch (Error& e) {
    e.within(path_);
    throw;
  }
}

void SafetensorsFile::read_header() {
  const std::span<const std::byte> file = file_.bytes();
  if (file.size() < kLengthBytes) refuse("{} bytes are too few for a safetensors file", file.size());
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    refuse("is not a safetensors file: its first bytes would mean a header of {} bytes, above {}", length,
           kMaxHeaderBytes);
  if (length > file.size() - kLengthBytes)
    refuse("the header has {} bytes, but only {} follow: the file is cut short", length, file.size() - kLengthBytes);

  const auto text = file.subspan(kLengthBytes, length);
  SafetensorsHeader header = parse_safetensors_header({reinterpret_cast<const char*>(text.data()), text.size()});
  const std::uint64_t begin = kLengthBytes + length;
  tensors_.reserve(header.tensors.size());
  for (const auto& claim : header.tensors) {
    try {
      tensors_.push_back(check(claim, begin, file.size() - begin));
    } catch (Error& e) {
      e.within("tensor " + for_message(claim.name));
      throw;
    }
  }
  check_cover(tensors_, begin, file.size());
  metadata_ = std::move(header.metadata);
  take_checksums({reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(begin)});
}

void SafetensorsFile::take_checksums(std::string_view head) {
  const auto made = metadata_.extract(std::string(kMadeKey));
  const auto given = metadata_.extract(std::string(kSumsKey));
  if (made.empty() && given.empty()) return;
  const bool whole = !made.empty() && made.mapped() == kMadeWith && !given.empty() &&
                     given.mapped().size() == kSumDigits * (tensors_.size() + 1);
  if (!whole) refuse("the checksums in its header are damaged");
  const std::string& sums = given.mapped();
  std::string zeroed(head);
  const std::size_t at = zeroed.find(sums);
  if (at == std::string::npos) refuse("the checksums in its header are damaged");
  std::fill_n(zeroed.begin() + static_cast<std::ptrdiff_t>(at), sums.size(), '0');
  const auto sum = [&](std::size_t i) {
    return parse_checksum(std::string_view(sums).substr(i * kSumDigits, kSumDigits));
  };
  if (sum(tensors_.size()) != checksum(zeroed))
    refuse("the checksum of its header does not match: it is damaged, or was changed by a program that kept it");
  std::vector<Tensor*> order;
  order.reserve(tensors_.size());
  for (Tensor& tensor : tensors_) order.push_back(&tensor);
  // As they were laid out: tensors without bytes share their offset with the next one, so offsets alone do not tell.
  std::stable_sort(order.begin(), order.end(),
                   [](const Tensor* a, const Tensor* b) { return size_of(a->type.dtype) > size_of(b->type.dtype); });
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i]->checksum = sum(i);
    if (!order[i]->checksum) refuse("the checksums in its header are damaged");
  }
}

void SafetensorsFile::verify(const Tensor& tensor) const {
  if (!tensor.checksum) return;
  // Piece by piece, so that no more of the file is in memory than its reader needs.
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  Checksum sum;
  const std::size_t size = size_of(tensor.type.dtype);
  for (std::int64_t first = 0; first < tensor.type.elements(); first += kPiece) {
    const std::int64_t count = std::min(kPiece, tensor.type.elements() - first);
    sum.add(bytes(tensor).subspan(static_cast<std::size_t>(first) * size, static_cast<std::size_t>(count) * size));
    release(tensor, first, count);
  }
  if (sum.take() != *tensor.checksum)
    refuse("{}: tensor {}: its checksum does not match: it is damaged", path_, for_message(tensor.name));
}

const SafetensorsFile::Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const Tensor& tensor, std::string_view n) { return tensor.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

const SafetensorsFile::Tensor& SafetensorsFile::at(std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const auto& tensor : tensors_) names.push_back(tensor.name);
  const auto close = nearest(name, names);
  refuse("{}: there is no tensor {}{}", path_, for_message(name),
         close ? fmt::format(" (the nearest is {})", for_message(*close)) : "");
}

std::span<const std::byte> SafetensorsFile::bytes(const Tensor& tensor) const {
  return file_.bytes().subspan(tensor.offset, tensor.type.bytes());
}

void SafetensorsFile::read_f32(const Tensor& tensor, std::span<float> out) const {
  if (!is_float(tensor.type.dtype))
    refuse("{}: tensor {}: expected a float type, got {}", path_, for_message(tensor.name), tensor.type.str());
  TRI_CHECK(static_cast<std::int64_t>(out.size()) == tensor.type.elements(), "{} values for {}", out.size(),
            tensor.type.str());
  const auto from = bytes(tensor);
  switch (tensor.type.dtype) {
    case DType::f32:
      if (!out.empty()) std::memcpy(out.data(), from.data(), from.size());
      return;
    case DType::f64: return convert<double>(from, out);
    case DType::f16: return convert<Float16>(from, out);
    default: return convert<BFloat16>(from, out);
  }
}

void SafetensorsFile::release(const Tensor& tensor, std::int64_t first, std::int64_t count) const {
  const std::size_t size = size_of(tensor.type.dtype);
  file_.release(tensor.offset + static_cast<std::size_t>(first) * size, static_cast<std::size_t>(count) * size);
}

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorToStream> streams;
  streams.reserve(tensors.size());
  for (const auto& tensor : tensors)
    streams.push_back({tensor.name, tensor.type, [&tensor](const auto& take) { take(tensor.bytes); }});
  stream_safetensors(path, streams, metadata);
}

void stream_safetensors(const std::string& path, std::span<const TensorToStream> tensors,
                        const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  std::string sums(kSumDigits * (tensors.size() + 1), '0');
  try {
    std::map<std::string, std::string> all = metadata;
    all[std::string(kMadeKey)] = kMadeWith;
    all[std::string(kSumsKey)] = sums;
    std::vector<std::pair<std::string, TensorType>> types;
    types.reserve(tensors.size());
    for (const auto& tensor : tensors) {
      if (!tensor.type.present) fail("tensor {}: 0 bytes given for {}", for_message(tensor.name), tensor.type.str());
      types.emplace_back(tensor.name, tensor.type);
    }
    layout = lay_out_safetensors(types, all);
  } catch (Error& e) {
    throw e.within(path);
  }
  const std::size_t at = layout.head.find(fmt::format(R"("{}":"{}")", kSumsKey, sums)) + kSumsKey.size() + 4;
  sums.clear();
  AtomicFile file(path);
  Checksum sum;
  file.write(layout.head);
  for (const std::size_t i : layout.order) {
    const TensorToStream& tensor = tensors[i];
    std::size_t given = 0;
    tensor.produce([&](std::span<const std::byte> bytes) {
      given += bytes.size();
      sum.add(bytes);
      file.write(bytes);
    });
    sums += checksum_text(sum.take());
    if (given != tensor.type.bytes())
      fail("{}: tensor {}: {} bytes given for {}", path, for_message(tensor.name), given, tensor.type.str());
  }
  sums += checksum_text(checksum(layout.head));
  file.rewrite(at, sums);
  file.commit();
}

}  // namespace trireme::io
