#pragma once
#include <set>
#include <string>

#include "trireme/passes/compress_gradients.h"
#include "trireme/train/compile.h"
#include "trireme/train/config.h"

namespace trireme::train {

// The first steps, which onebit and topk leave uncompressed.
std::int64_t compression_warmup(const Config& config);
// Whether there is something to be left uncompressed.
bool compresses_later(const Config& config);
// The same of a run that goes on, of which `done` steps are done and `before` is the configuration: what it had,
// however long it is now, until another length is asked for. Compression that it had not has its warm-up from here on.
std::int64_t compression_warmup(const Config& config, const Config& before, std::int64_t done);

// What the variance of AdamW in a state after `step` steps as `saved` says has to be multiplied with to be read by
// steps as `config` says: a variance is corrected by the updates that it has seen, and 1-bit Adam's sees those of its
// warm-up.
double variance_scale(const Config& config, const Config& saved, std::int64_t step, std::int64_t updates_per_step);

// The command line has named another compression than the file, whose configuration was `before`. What the file says of
// its own, and the other has no use for, goes with it, unless it is `named` too.
void drop_replaced_compression(Config& config, const Config& before, const std::set<std::string>& named);

// Of compression that finds nothing to compress, and of a warm-up in which 1-bit Adam learns too little of the variance
// that it then keeps; "": there is nothing to say.
std::string compression_warning(const Config& config, const Compiled& compiled);

// What parallel.compress and its keys ask for; it must not be "none". With adamw, `onebit` is the momentum's.
passes::CompressGradients::Options compression(const Config& config);

}  // namespace trireme::train
