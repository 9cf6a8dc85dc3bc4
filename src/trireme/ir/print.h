#pragma once
#include <string>
#include <string_view>

#include "trireme/ir/graph.h"

namespace trireme::ir {

// The module as text. `parse(to_text(m))` is equal to a compacted `m`, to the last bit of its floats.
//
//   module {
//     state @blocks.0.up.weight : f32[512,128] category=weights init=normal(0.02) trained decayed
//     graph micro {
//       input %tokens : i32[4,64]
//       %embed = embedding(%tokens, @embed.weight) : f32[4,64,128]
//       %blocks.0.ln1, %blocks.0.ln1:1 = layer_norm(%embed, @…, _) {eps=1e-05} : f32[4,64,128], f32[4,64]
//       %d = mul(%a, %b) : f32[4] phase=input_gradient stage=1 barrier
//       %p, %m = sgd(@w, %g, @w/momentum, %lr, %clip, %finite) {…} : f32[4], f32[4] phase=update on_host
//       write add @blocks.0.up.weight/grad = %d
//       output loss = %l
//     }
//   }
std::string to_text(const Module& module);
std::string to_text(const Module& module, const Graph& graph);

// Throws Error "line 12: …" on malformed text.
Module parse(std::string_view text, const Registry& registry);

// Graphviz: nodes coloured by phase, parameters as boxes.
std::string to_dot(const Module& module, const Graph& graph);

}  // namespace trireme::ir
