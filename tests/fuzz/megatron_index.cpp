#include "trireme/data/megatron_index.h"

#include <cstring>

#include "fuzz/targets.h"

namespace trireme::fuzz {

void megatron_index(Input input) {
  std::uint64_t bin = 0;
  if (input.size() < sizeof bin) return;
  std::memcpy(&bin, input.data(), sizeof bin);
  const data::MegatronIndex index = data::parse_megatron_index(bytes_of(input.subspan(sizeof bin)), bin, "fuzz.idx");
  fail_if(index.sequences > input.size(), "an index describes more sequences than it has bytes");
}

}  // namespace trireme::fuzz
