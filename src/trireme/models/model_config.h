#pragma once
#include <trireme/model_config.h>

namespace trireme::models {

using trireme::ModelConfig;

}  // namespace trireme::models
