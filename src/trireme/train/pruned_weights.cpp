#include "trireme/train/pruned_weights.h"

#include <algorithm>
#include <vector>

#include "trireme/train/load_slice.h"

namespace trireme::train {

bool set_mask_from(Rank& rank, const ir::State& mask,
                   const std::function<void(const ir::Slice& slice, std::span<std::byte> out)>& read) {
  std::vector<float> values(static_cast<std::size_t>(mask.global_shape().elements()));
  read(ir::all_of(mask.global_shape()), std::as_writable_bytes(std::span(values)));
  const auto zeros = static_cast<double>(std::count(values.begin(), values.end(), 0.0F));
  const auto all = static_cast<double>(values.size());
  if (zeros < kPrunedShare * all || zeros == all) return false;
  load_slice(rank, mask, [&](const ir::Slice& slice, std::span<std::byte> out) {
    read(slice, out);
    const std::span<float> kept(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float));
    for (float& value : kept) value = value == 0 ? 0.0F : 1.0F;
  });
  return true;
}

}  // namespace trireme::train
