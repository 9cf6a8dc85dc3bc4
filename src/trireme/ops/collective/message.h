#pragma once
#include <string_view>

#include "trireme/ir/op_def.h"

// Values that leave for a rank beyond the mesh, and values that come from there. `peer` is that rank's place among its
// kind; `key` tells the values that travel between two ranks apart; `of` says what it is a value of, for people and for
// whoever is at the other end. Both are fixed when the program is made, so that each end knows what to expect.
namespace trireme::ops {

inline constexpr std::string_view kPush = "push";
inline constexpr std::string_view kPull = "pull";

// push(x) peer=0 key=0 of="" → u8[1], which says that it has left.
ir::OpDef push_def();
// pull(after…) peer=0 key=0 of="" shape dtype → what `peer` sends under that key. `after` is what it is an answer to.
ir::OpDef pull_def();

inline bool is_message(const ir::OpDef& op) { return op.name == kPush || op.name == kPull; }

}  // namespace trireme::ops
