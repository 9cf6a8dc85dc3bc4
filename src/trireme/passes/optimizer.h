#pragma once
#include <cstdint>
#include <string_view>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// Adds the `update` graph: the optimizer's states and, once per step, the new parameters.
//
//   %total  = add_n(sum_squares(@w/grad), …)
//   %norm, %clip, %finite = clip_scale(%total, @loss)
//   %w, %m, %v = adamw(@w, @w/grad, @w/m, @w/v, %lr, %step, %clip, %finite)
//   write set @w = %w …
//
// There is no branch: `finite` selects every state write, so after a bad step the state is what it was. State that the
// micro graph itself writes (running statistics) is written to a shadow, and taken over or restored here.
class Optimizer : public Pass {
 public:
  enum class Kind : std::uint8_t { adamw, sgd };  // named as their ops
  struct Options {
    Kind kind = Kind::adamw;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double momentum = 0.9;
    double weight_decay = 0.1;
    double clip = 1.0;  // 0: off
  };
  explicit Optimizer(Options options) : options_(options) {}
  // Refuses what is none.
  static Kind parse(std::string_view name);
  std::string name() const override { return "optimizer"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// Whether a state is AdamW's second moment.
bool is_variance(const ir::State& state);

}  // namespace trireme::passes
