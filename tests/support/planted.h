#pragma once
#include <functional>
#include <memory>

#include "trireme/ir/op_def.h"
#include "trireme/program/program.h"

namespace trireme::testing {

// Makes the kernel of a launch do something more after its work, to which it gives what it was launched with and the
// bytes of its first output. What is returned must outlive the program.
std::shared_ptr<const ir::OpDef> plant(program::Instruction& launch,
                                       std::function<void(const device::Launch&, std::size_t bytes)> fault);

}  // namespace trireme::testing
