#pragma once
#include <trireme/data.h>

#include "trireme/data/dataset.h"

namespace trireme {

// One of the three functions is there.
struct OwnSamples {
  std::int64_t samples = 0;
  ReadTokens tokens = {};
  ReadImage image = {};
  WriteInputs write = {};
  std::vector<Input> inputs = {};  // that it writes
  WriteInputs write_whole = {};    // for those of them that do not go by rows
  std::uint64_t held = 0;          // bytes of samples that are in memory
};

// The samples that a program makes itself, as datasets. Refuses too few of them and a vocabulary that is not known.
data::Data open_own(const Data& data);

}  // namespace trireme
