#include "support/planted.h"

#include "trireme/core/error.h"

namespace trireme::testing {

std::shared_ptr<const ir::OpDef> plant(program::Instruction& launch,
                                       std::function<void(const device::Launch&, std::size_t bytes)> fault) {
  TRI_CHECK(launch.kind == program::Instruction::Kind::launch, "a fault is planted in a launch");
  auto op = std::make_shared<ir::OpDef>(*launch.op);
  op->name += "_with_a_fault";
  ir::KernelDef& kernel = op->kernels.at(device::Kind::cpu);
  kernel.prepare = [sound = kernel.prepare, fault = std::move(fault)](const ir::KernelSpec& spec) {
    return device::make_kernel(
        [kernel = sound(spec), fault, bytes = spec.outputs.front().bytes()](const device::Launch& given) {
          kernel->launch(given);
          fault(given, bytes);
        });
  };
  launch.op = op.get();
  return op;
}

}  // namespace trireme::testing
