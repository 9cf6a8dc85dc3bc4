#pragma once
#include <set>
#include <string>

#include "trireme/passes/compress_gradients.h"
#include "trireme/train/config.h"

namespace trireme::train {

// The first steps, which onebit and topk leave uncompressed.
std::int64_t compression_warmup(const Config& config);

// The command line has named another compression than the file, whose configuration was `before`. What the file says of
// its own, and the other has no use for, goes with it, unless it is `named` too.
void drop_replaced_compression(Config& config, const Config& before, const std::set<std::string>& named);

// Of a warm-up in which 1-bit Adam learns too little of the variance that it then keeps; "": there is nothing to say.
std::string compression_warning(const Config& config);

// What parallel.compress and its keys ask for; it must not be "none". With adamw, `onebit` is the momentum's.
passes::CompressGradients::Options compression(const Config& config);

}  // namespace trireme::train
