#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// document_starts(tokens i32 [b,s]) end → i32 [b,s]: for each position, that of the first token of its document. A
// document ends with the token `end`, which still belongs to it.
//
//   end = 0:   tokens  5 7 0 4 0 0 9    starts  0 0 0 3 3 5 6
ir::OpDef document_starts_def();

std::shared_ptr<device::Kernel> prepare_document_starts_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
