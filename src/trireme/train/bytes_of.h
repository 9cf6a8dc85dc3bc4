#pragma once
#include <cstddef>
#include <span>

namespace trireme::train {

// The bytes of one value, as an executor's inputs are bound. The value must outlive what reads them.
template <class T>
std::span<const std::byte> one(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace trireme::train
