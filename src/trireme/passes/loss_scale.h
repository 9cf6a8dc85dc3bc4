#pragma once
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Dynamic loss scaling, for gradients in a type whose smallest numbers are not small enough. Autodiff has started from
// the state `loss_scale` instead of from 1; this pass makes the update undo that and choose the next scale:
//
//   %n, %clip, %finite = clip_scale(%total, @loss)
//   … = adamw(@w, @w/grad, @w/m, @w/v, %lr, %step, %clip, %finite)
//                                           ↓
//   %n, %clip, %finite = clip_scale(%total, @loss, @loss_scale)
//   %scale, %good, %skipped = adaptive_scale(@loss_scale, @loss_scale/good, @loss_scale/skipped, %finite)
//   %updates = add(%step, scale(@loss_scale/skipped) {factor=-1.0})
//   … = adamw(@w, @w/grad, @w/m, @w/v, %lr, %updates, %clip, %finite)
//   write set @loss_scale = %scale …
//
// There is no branch: `finite` withholds the update of a step that overflowed, and that step is not one for AdamW's
// bias correction. The three scalars are saved, so a resumed run scales as an uninterrupted one. Runs after the
// optimizer.
class LossScale : public Pass {
 public:
  // Of the state, and of the update's output that gives the scale a step was taken with.
  static constexpr const char* kState = "loss_scale";
  // Below this, scaling would only hide what the f32 loss itself does.
  static constexpr double kLowest = 1;
  // Where gradients vanish altogether the scale would grow for ever.
  static constexpr double kHighest = 0x1p32;

  struct Options {
    double start = 65536;
    std::int64_t window = 2000;  // good steps in a row after which the scale doubles
  };
  explicit LossScale(Options options) : options_(options) {}
  std::string name() const override { return "loss-scale"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

}  // namespace trireme::passes
