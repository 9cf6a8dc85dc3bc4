#pragma once

namespace trireme::device::cuda {

// Of tensors that are worked on by one launch, in the order of their `first_block`: the one that this block belongs to.
template <class Entry>
__device__ __forceinline__ const Entry& entry_of_block(const Entry* entries, int count) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (entries[middle].first_block <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  return entries[low];
}

}  // namespace trireme::device::cuda
