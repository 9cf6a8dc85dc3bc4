#include "trireme/data/idx_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kExtentBytes = 4;
constexpr std::size_t kMaxDimensions = 4;
constexpr unsigned kUnsignedByte = 0x08;

constexpr std::array<std::pair<unsigned, const char*>, 6> kTypes = {{{kUnsignedByte, "unsigned bytes"},
                                                                     {0x09, "signed bytes"},
                                                                     {0x0b, "16-bit integers"},
                                                                     {0x0c, "32-bit integers"},
                                                                     {0x0d, "32-bit floats"},
                                                                     {0x0e, "64-bit floats"}}};

unsigned byte_at(std::span<const std::byte> bytes, std::size_t i) { return std::to_integer<unsigned>(bytes[i]); }

const char* type_name(unsigned code) {
  const auto* const found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.first == code; });
  return found == kTypes.end() ? nullptr : found->second;
}

}  // namespace

bool looks_like_idx(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagicBytes && byte_at(bytes, 0) == 0 && byte_at(bytes, 1) == 0 &&
         type_name(byte_at(bytes, 2)) != nullptr && byte_at(bytes, 3) >= 1 && byte_at(bytes, 3) <= kMaxDimensions;
}

IdxFile parse_idx(std::span<const std::byte> bytes, const std::string& name) {
  if (!looks_like_idx(bytes)) refuse("{}: is not an IDX file of one to {} dimensions", name, kMaxDimensions);
  if (const unsigned code = byte_at(bytes, 2); code != kUnsignedByte)
    refuse("{}: holds {}; images and labels must be unsigned bytes", name, type_name(code));
  const std::size_t dimensions = byte_at(bytes, 3);
  const std::size_t header = kMagicBytes + dimensions * kExtentBytes;
  if (bytes.size() < header) refuse("{}: {} bytes are too few for its header of {}", name, bytes.size(), header);
  IdxFile file;
  std::uint64_t elements = 1;
  bool countable = true;
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::uint64_t extent = 0;
    for (std::size_t i = 0; i < kExtentBytes; ++i)
      extent = extent << 8 | byte_at(bytes, kMagicBytes + d * kExtentBytes + i);
    file.extents.push_back(static_cast<std::int64_t>(extent));
    countable = countable && !__builtin_mul_overflow(elements, extent, &elements);
  }
  file.elements = bytes.subspan(header);
  if (!countable || elements != file.elements.size())
    refuse("{}: its header promises {} bytes of data, but {} follow", name, fmt::join(file.extents, "×"),
           file.elements.size());
  return file;
}

}  // namespace trireme::data
