#pragma once
#include <string_view>

#include "trireme/train/config/keys.h"

namespace trireme::train {

// Whether a key says how a model is trained, and not what is learned or where files lie: then a plan has it.
bool is_plan_key(const Key& key);
// The one that is a table of its own.
inline constexpr std::string_view kShardingKey = "parallel.sharding";

}  // namespace trireme::train
