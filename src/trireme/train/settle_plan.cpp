#include "trireme/train/settle_plan.h"

#include "trireme/core/error.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/same_run.h"

namespace trireme::train {

Planned settle_plan(const Config& config, const Registry& registry, const CompileOptions& options,
                    comm::Communicator* world) {
  if (world == nullptr) return make_plan(config, registry, options);
  auto max_threads = static_cast<std::int32_t>(options.threads);
  world->all_reduce(std::span(&max_threads, 1), comm::Reduce::max);
  Planned decided;
  const std::string text = made_by_first(
      [&] {
        CompileOptions widest = options;
        widest.threads = max_threads;
        decided = make_plan(config, registry, widest);
        return plan_text(config, decided);
      },
      *world);
  if (world->rank() == 0) {
    decided.plan.threads = options.threads;
    return decided;
  }
  CompileOptions following = options;
  following.decided = parse_plan(text, "the plan of rank 0").decisions;
  Config there = config;
  there.runtime.device = following.decided->device == device::Kind::cpu ? Device::cpu : Device::cuda;
  try {
    return make_plan(there, registry, following);
  } catch (Error& e) {
    throw e.within(fmt::format("rank {} cannot follow the plan of rank 0", world->rank()));
  }
}

}  // namespace trireme::train
