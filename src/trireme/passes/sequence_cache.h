#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Makes graphs of a causal model continue a sequence instead of starting one: what attention saw of earlier rows is
// kept in state variables, and ops that depend on the position read it from a new input `position`, i32 [].
//
//   %q = rotary(%x)                          %q = rotary(%x, %position)
//   %k = rotary(%y)                →         %k = rotary(%y, %position)
//   %o, %lse = attention(%q, %k, %v)         %o, %k2, %v2 = cached_attention(%q, %k, %v, @…/k, @…/v, %position)
//                                            write @…/k = %k2, @…/v = %v2
//
// With `int8` caches are kept in 8 bits, as codes and scales: cached_attention_int8, @…/k and @…/k/scale.
//
// Graphs of different lengths share the caches. The first `position` rows must have been run before.
class SequenceCache : public Pass {
 public:
  struct Options {
    std::vector<std::string> graphs;
    std::int64_t rows = 0;  // that the caches hold
    bool int8 = false;
  };
  explicit SequenceCache(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "sequence-cache"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
