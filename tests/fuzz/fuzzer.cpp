// What libFuzzer calls; built once per target with its function as TRIREME_FUZZ_TARGET.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::fuzz::run_input(trireme::fuzz::TRIREME_FUZZ_TARGET, {data, size});
  return 0;
}
