#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trireme/train/compile.h"

namespace trireme::train {

// Ranks of a run beyond those of its mesh: they take no rows of the batch, and answer the messages of those that do
// (program::Exchange). Which there are and what does not go with them is known to the one file that defines
// these functions; the rest asks here.

// The setting that asks for them, for messages: "section.key = value"; empty: there are none.
std::string extra_ranks_setting(const Config& config);
// Its key, and the others that say more about them.
std::vector<std::string> extra_ranks_keys();
// For the message that a limit is too small for an extra rank, which needs so many times of it: what would make its
// share smaller.
std::string smaller_share(const Config& config, double times);

// Refuses settings that do not go with them.
void check_extra_ranks(const Config& config);
// Keys that do nothing because of them, and why: "is for …".
struct WithoutEffect {
  bool when = false;
  std::string_view reason;
  std::vector<std::string_view> keys;
};
std::vector<WithoutEffect> without_effect_by_extra_ranks(const Config& config);
// Adds to a plan, whose mesh is known, what they do.
void plan_extra_ranks(const Config& config, compiler::Plan& plan);
// Refuses ranks that are to run at their own pace and wait for each other in every step all the same.
void check_pace(const Compiled& compiled, const Config& config);

}  // namespace trireme::train
