#include "trireme/core/error.h"
#include "trireme/data/dataset.h"

namespace trireme::data {

void narrow_images(std::span<const float> from, DType to, std::span<std::uint16_t> out) {
  TRI_CHECK(from.size() == out.size() && size_of(to) == 2, "{} values as {}", from.size(), name_of(to));
  if (to == DType::bf16)
    for (std::size_t i = 0; i < from.size(); ++i) out[i] = BFloat16(from[i]).bits;
  else
    for (std::size_t i = 0; i < from.size(); ++i) out[i] = Float16(from[i]).bits;
}

}  // namespace trireme::data
