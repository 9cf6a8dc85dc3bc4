#pragma once
#include "trireme/compiler/compiled.h"
#include "trireme/data/loader.h"

namespace trireme::train {

// An asynchronous pipeline that is asked to stop takes one more step, and a stage may be a step behind: with data for
// so many it can be drained and saved.
inline constexpr int kStepsToDrain = 2;

// Batches that a loader of the run reads ahead.
inline int loader_depth(const compiler::Compiled& compiled) {
  return compiled.synchronous() ? data::LoaderOptions{}.depth : kStepsToDrain + 1;
}

}  // namespace trireme::train
