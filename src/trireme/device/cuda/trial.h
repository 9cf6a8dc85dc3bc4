#pragma once
#include <cstddef>
#include <vector>

#include "trireme/core/dtype.h"
#include "trireme/device/stream.h"

// Choosing among a library's algorithms. The fastest depends on timing and on the memory that is free; the results of
// training must not. So the library's first proposal sets the bits, and only algorithms that give the same bits on
// random operands compete: they add in the same order.
namespace trireme::device::cuda {

// Numbers as activations have them, always the same. A GPU multiplies equal numbers faster than it will these.
void fill_with_noise(std::byte* to, std::size_t bytes, DType dtype);

// Compares what candidates compute with what the first of them did.
class SameBits {
 public:
  struct Result {
    std::byte* data;   // where candidates write
    std::byte* first;  // as much memory, for what the first candidate wrote
    std::size_t bytes;
  };
  // `count` is 8 bytes of the GPU's memory.
  SameBits(std::vector<Result> results, unsigned long long* count) : results_(std::move(results)), count_(count) {}

  // After a candidate has run on stream 0: whether its results equal those of the first for which this was called.
  bool check(Streams& streams);

 private:
  std::vector<Result> results_;
  unsigned long long* count_;
  bool has_first_ = false;
};

}  // namespace trireme::device::cuda
