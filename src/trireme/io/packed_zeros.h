#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace trireme::io {

// Tensors that are zero in many places, in fewer bytes: a bit for each element that says whether it is there, lowest
// bit first, then those that are, f32 in order. A zero of either sign comes back as +0.
//
//   80% zeros: 0.2 · 4 + 1/8 = 0.93 bytes for an element;  two of four: 2.13

// Nothing where it would not be smaller.
std::optional<std::vector<std::byte>> pack_zeros(std::span<const float> values);
// False where these are not the bytes of so many elements.
bool unpack_zeros(std::span<const std::byte> packed, std::span<float> values);

}  // namespace trireme::io
