#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

// An IDX file: two zero bytes, a type code, the number of dimensions, each extent as a big-endian word, the elements.
struct IdxFile {
  std::vector<std::int64_t> extents;
  std::span<const std::byte> elements;  // unsigned bytes, row-major; as many as the extents say
};

// Whether `bytes` begin as an IDX file of any type does.
bool looks_like_idx(std::span<const std::byte> bytes);

// Reads `bytes`, a whole file called `name`. Refuses elements other than unsigned bytes, more than four dimensions,
// and a size that is not exactly that of the extents.
IdxFile parse_idx(std::span<const std::byte> bytes, const std::string& name);

}  // namespace trireme::data
