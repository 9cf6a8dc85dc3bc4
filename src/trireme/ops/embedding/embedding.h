#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// embedding(tokens i32 [...], table [V,D]) → [...,D] of table's type: row `token` of the table for each token. A token
// outside [0, V) fails, naming it and its position; with masked=true a negative one gives zeros.
ir::OpDef embedding_def();

// embedding_grad(tokens, dy [...,D]) → [V,D]: row t is the sum of dy over the positions that hold token t, in their
// order; other rows are zero. Attributes: vocab = V, out = "same" (dy's type) | "f32", masked = false: true ignores
// negative tokens. Accumulates.
ir::OpDef embedding_grad_def();

// local_tokens(tokens i32 [...], place i64 []) vocab rows → of a table of `vocab` rows, stored `rows` to a place, the
// tokens counted from the first row of this place; -1: another place has the row. A token outside [0, vocab) fails.
ir::OpDef local_tokens_def();

// Throws, naming the token and its position, unless it is in [0, vocab).
void check_token(std::int32_t token, std::int64_t vocab, std::int64_t position);

std::shared_ptr<device::Kernel> prepare_embedding_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_embedding_grad_cpu(const ir::KernelSpec& spec);
std::size_t embedding_grad_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
