#pragma once
#include <cstddef>
#include <functional>

#include "trireme/data/loader.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// Images in a GPU's memory before they are asked for: the loader's thread copies each batch there while the step before
// is computed, and a step begins with a copy within that memory instead of one over the host's link.

// Bytes that this takes of the GPU, for every batch that a loader holds, where the `ranks` from `first` on are one
// process; 0: they do without. That is so on a CPU, where several ranks or micro-batches would share a batch, under a
// limit of memory, and unless the environment has TRIREME_IMAGES_AHEAD.
std::size_t images_ahead_bytes(const Config& config, const Compiled& compiled, int first, int ranks);

// For LoaderOptions::made. Empty where there is nothing to do, or no memory left for it.
std::function<void(data::Batch&)> copy_images_ahead(const Config& config, const Compiled& compiled, int first,
                                                    int ranks);

}  // namespace trireme::train
