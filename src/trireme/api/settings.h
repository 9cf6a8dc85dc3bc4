#pragma once
#include <trireme/trainer.h>

#include "trireme/train/config.h"

namespace trireme {

// The configuration that the public options stand for: a file's rules and refusals.
train::Config settings(ModelConfig model, const Data& data, const TrainOptions& options, const Plan& plan,
                       const models::Families& families);
train::Config settings(const Pretrained& from, const Data& data, const TrainOptions& options, const Plan& plan,
                       const models::Families& families);

}  // namespace trireme
