#include "fuzz/targets.h"
#include "trireme/ir/print.h"
#include "trireme/ir/verify.h"
#include "trireme/ops/all.h"

namespace trireme::fuzz {

void graph(Input input) {
  static const ir::Registry registry = ops::builtin();
  const ir::Module module = ir::parse(text_of(input), registry);
  ir::verify(module);
  const std::string text = ir::to_text(module);
  const ir::Module again = ir::parse(text, registry);
  ir::verify(again);
  fail_if(ir::to_text(again) != text, "a module does not survive being printed and parsed");
  for (const ir::Graph& g : module.graphs) ir::to_dot(module, g);
}

}  // namespace trireme::fuzz
