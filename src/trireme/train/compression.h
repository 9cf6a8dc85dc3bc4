#pragma once
#include "trireme/passes/compress_gradients.h"
#include "trireme/train/config.h"

namespace trireme::train {

// What parallel.compress and the keys beside it ask for; it must not be "none". With adamw, `onebit` is the momentum's.
passes::CompressGradients::Options compression(const Config& config);

}  // namespace trireme::train
