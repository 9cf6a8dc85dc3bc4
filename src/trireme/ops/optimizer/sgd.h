#pragma once
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// sgd(param f32, grad, momentum f32, lr f32[], clip f32[], finite f32[], keep? f32)
//   momentum=0.9 weight_decay=0.0 low="none"|"bf16"|"f16" → param', momentum' [, low copy of param']
//
//   momentum' = μ·momentum + clip·grad;  param' = param·(1 − lr·decay) − lr·momentum'
//
// The decay is decoupled, as in AdamW. finite = 0 leaves param and momentum as they were (the low copy is still
// written). keep multiplies what becomes of param and momentum, also after a step that is not finite. In place on param
// and momentum; one pass over memory.
ir::OpDef sgd_def();

}  // namespace trireme::ops
