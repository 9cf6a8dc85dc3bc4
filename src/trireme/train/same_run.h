#pragma once
#include <functional>
#include <optional>

#include "trireme/comm/communicator.h"
#include "trireme/data/dataset.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// A text that one process has, for all of them. Collective.
std::string broadcast_from(int root, std::string text, comm::Communicator& world);

// A text that takes the first process a while to make, for all of them. The others wait for as long as it takes, which
// is no stall: the world's timeout counts from when the text is there. What `make` throws ends the world, so that none
// of them waits for ever. Collective.
std::string made_by_first(const std::function<std::string()>& make, comm::Communicator& world);
// A configuration as the first process changes it, for all of them: each has the same values of the keys that
// `change` has changed. Collective, after check_same_settings.
Config changed_by_first(const Config& config, const std::function<Config(Config)>& change, comm::Communicator& world,
                        const models::Families& families);

// Processes that make one run must have been started with the same settings and have compiled the same communication:
// otherwise they would wait for each other for ever, or train something else than was asked for. All are collective
// over `world` and refuse in every process, naming what differs and both values. Keys about this machine alone
// (output.*, runtime.threads, runtime.trace, memory.offload_dir) may differ.
struct Fact {
  std::string name;
  std::string value;
};
// `more` is what else was asked for, in the same order everywhere: flags of the command line, say.
void check_same_settings(const Config& config, const std::vector<Fact>& more, comm::Communicator& world);
// What a plan that all were given decides, apart from the keys; nothing: none was given. That of a run which is resumed
// is none of these: the first process's counts.
std::vector<Fact> facts_of(const std::optional<Decisions>& plan);
// What each has read.
void check_same_data(const data::Data& data, comm::Communicator& world);
// Of the training and held-out samples: of their number and the contents of some.
std::string digest_of(const data::Data& data);
void check_same_programs(const Compiled& compiled, comm::Communicator& world);

}  // namespace trireme::train
