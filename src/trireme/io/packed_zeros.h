#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace trireme::io {

// Tensors that are zero in many places, in fewer bytes: a bit for each element that says whether it is there, lowest
// bit first, then those that are, f32 in order.
//
//   80% zeros: 0.2 · 4 + 1/8 = 0.93 bytes for an element;  two of four: 2.13
//
// Of zeros and ones alone, as in a mask, there are the bits only. Where some of the zeros are −0, bits that name them
// stand between: everything comes back as it was. The number of bytes says which of the three it is.

// The packed bytes of a tensor that need not be in memory, made as they are asked for, from the first to the last.
class ZeroPacker {
 public:
  using Read = std::function<void(std::size_t offset, std::span<std::byte> out)>;
  // Reads all of it once, to know how many bytes it becomes, and up to three times more while it is packed. The
  // elements must not change meanwhile.
  ZeroPacker(std::size_t elements, Read read);
  explicit ZeroPacker(std::span<const float> values);  // which must outlive it

  std::size_t bytes() const { return (signs_ ? 2 : 1) * bits() + (ones_ ? 0 : there_ * sizeof(float)); }
  bool smaller() const { return bytes() < elements_ * sizeof(float); }
  // The next bytes. `offset` must be where the last call ended.
  void read(std::size_t offset, std::span<std::byte> out);

 private:
  enum class Part : std::uint8_t { bits, signs, values };
  std::size_t bits() const { return (elements_ + 7) / 8; }
  std::span<const std::uint32_t> load(std::size_t first);
  void make();

  std::size_t elements_;
  Read read_;
  std::size_t there_ = 0;
  bool ones_ = true;    // what is there is 1, and every zero is +0
  bool signs_ = false;  // some zeros are −0
  // What is being packed: the part, the next element of it, and bytes that were made and not given yet.
  Part part_ = Part::bits;
  std::size_t next_ = 0;
  std::size_t given_ = 0;
  std::size_t taken_ = 0;
  std::vector<std::uint32_t> block_;
  std::vector<std::byte> made_;
};

// False where these are not the bytes of so many elements.
bool unpack_zeros(std::span<const std::byte> packed, std::span<float> values);

}  // namespace trireme::io
