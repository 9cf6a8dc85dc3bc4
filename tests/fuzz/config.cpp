#include "trireme/train/config.h"

#include "fuzz/targets.h"

namespace trireme::fuzz {

void config(Input input) {
  const train::Config config = train::parse_config(text_of(input), "fuzz.toml");
  // What is written into a run folder is what was meant.
  const train::Config again = train::parse_config(train::to_toml(config), "again.toml");
  fail_if(!train::differing_keys(config, again).empty(), "a configuration does not survive being written and read");
}

}  // namespace trireme::fuzz
