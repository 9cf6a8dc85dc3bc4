#pragma once
#include <trireme/data.h>

#include "trireme/data/dataset.h"

namespace trireme {

// One of the two is there.
struct OwnSamples {
  std::int64_t samples = 0;
  ReadTokens tokens;
  ReadImage image;
};

// The samples that a program makes itself, as datasets. Refuses too few of them and a vocabulary that is not known.
data::Data open_own(const Data& data);

}  // namespace trireme
