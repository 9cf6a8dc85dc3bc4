#pragma once
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// adamw(param f32, grad, m f32, v f32, lr f32[], step f32[], clip f32[], finite f32[], keep? f32)
//   beta1=0.9 beta2=0.999 eps=1e-8 weight_decay=0.0 low="none"|"bf16"|"f16" → param', m', v' [, low copy of param']
//
//   g = clip·grad;  m' = β1·m + (1−β1)·g;  v' = β2·v + (1−β2)·g²
//   param' = param·(1 − lr·decay) − lr · m'/(1−β1^step) / (√(v'/(1−β2^step)) + eps)
//
// step counts from 1. grad has any compute dtype. finite = 0 leaves param, m and v as they were (the low copy is still
// written). keep multiplies what becomes of param, m and v, also after a step that is not finite. In place on param, m
// and v, and with the low copy on grad; one pass over memory.
ir::OpDef adamw_def();

}  // namespace trireme::ops
