#include "trireme/compiler/role_name.h"

#include <vector>

#include "trireme/core/text.h"
#include "trireme/ir/axes.h"

namespace trireme::compiler {

std::string role_name(const passes::Places& places) {
  std::vector<std::string> parts;
  for (const char* axis : {ir::kPipelineAxis, ir::kHeightAxis, ir::kWidthAxis})
    if (const auto at = places.find(axis); at != places.end())
      parts.push_back(fmt::format("{} {}", axis == ir::kPipelineAxis ? "stage" : axis, at->second));
  return parts.empty() ? "worker" : fmt::format("{}", fmt::join(parts, ", "));
}

int stage_of(const passes::Places& places) {
  const auto at = places.find(ir::kPipelineAxis);
  return at == places.end() ? 0 : at->second;
}

}  // namespace trireme::compiler
