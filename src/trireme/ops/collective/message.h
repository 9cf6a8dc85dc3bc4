#pragma once
#include <string_view>

#include "trireme/ir/op_def.h"

// Values that leave for a rank beyond the mesh, and values that come from there. `peer` is that rank's place among its
// kind; `key` tells the values that travel between two ranks apart; `of` says what it is a value of, for people and for
// the rank at the other end. Both are fixed when the program is made, so that each end knows what to expect.
namespace trireme::ops {

inline constexpr std::string_view kPush = "push";
inline constexpr std::string_view kPull = "pull";

// push(x) peer=0 key=0 of="" → u8[1], which says that it has left.
ir::OpDef push_def();
// pull(after…) peer=0 key=0 of="" shape dtype → what `peer` sends under that key. `after` is what it is an answer to.
ir::OpDef pull_def();

// Values that go between ranks that differ in their place along one axis alone, from place `from` to place `to`.
// `channel` says what they are: "activation", "gradient" or "tie" (the gradient of a parameter that both ends have);
// `key` tells the values of a channel apart that go the same way.
inline constexpr std::string_view kSend = "send";
inline constexpr std::string_view kReceive = "receive";

// send(x) channel from to key of="" → u8[1], which says that it has left.
ir::OpDef send_def();
// receive() channel from to key of="" shape dtype → what was sent.
ir::OpDef receive_def();

// Nodes that stay though nothing reads what they make: the rank at the other end waits for them.
inline bool sends_or_receives(const ir::OpDef& op) { return op.name == kSend || op.name == kReceive; }

inline bool is_message(const ir::OpDef& op) { return op.name == kPush || op.name == kPull || sends_or_receives(op); }

}  // namespace trireme::ops
