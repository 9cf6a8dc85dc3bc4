#include "fuzz/targets.h"
#include "trireme/core/error.h"
#include "trireme/train/plan_file.h"

namespace trireme::fuzz {

void plan(Input input) {
  for (const bool of_run : {false, true}) {
    const train::PlanFile read = train::parse_plan(text_of(input), "fuzz.toml", train::PlanKeys::some, of_run);
    train::Config config;
    try {
      for (const std::string& setting : read.settings) train::apply_setting(config, setting);
    } catch (const Error&) {
      fail_if(true, "a key of a plan is refused when it is followed");
    }
  }
}

}  // namespace trireme::fuzz
