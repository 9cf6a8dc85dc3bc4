#include "trireme/train/same_run.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/program/check_together.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

std::string broadcast(std::string text, comm::Communicator& world, int root) {
  auto size = static_cast<std::int64_t>(text.size());
  world.broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  text.resize(static_cast<std::size_t>(size));
  world.broadcast(std::as_writable_bytes(std::span(text)), root);
  return text;
}

// The first rank with something to say says it everywhere.
void refuse_together(const std::string& own, comm::Communicator& world) {
  auto first = static_cast<std::int32_t>(own.empty() ? world.size() : world.rank());
  world.all_reduce(std::span(&first, 1), comm::Reduce::min);
  if (first == world.size()) return;
  refuse("{}", broadcast(own, world, first));
}

bool about_this_machine(const std::string& key) {
  return key.starts_with("output.") || key == "runtime.threads" || key == "runtime.trace" ||
         key == "memory.offload_dir";
}

}  // namespace

void check_same_settings(const Config& config, comm::Communicator& world) {
  Config copy = config;
  std::string text;
  for (const Key& key : keys_of(copy)) text += fmt::format("{}\n{}\n", key.name, to_text(key));
  const std::string theirs = broadcast(text, world, 0);
  std::string different;
  if (theirs != text) {
    const std::vector<std::string> lines = split(theirs, '\n');
    for (std::size_t i = 0; i + 1 < lines.size() && different.empty(); i += 2)
      if (const std::string own = value_text(config, lines[i]); own != lines[i + 1] && !about_this_machine(lines[i]))
        different = fmt::format(
            "the processes of this run were started with different settings: {} is {} on rank 0 and {} on rank {}",
            lines[i], lines[i + 1], own, world.rank());
  }
  refuse_together(different, world);
}

void check_same_programs(const Compiled& compiled, comm::Communicator& world) {
  std::vector<std::uint64_t> digests;
  std::vector<std::string> names;
  for (const Role& role : compiled.roles)
    for (const program::Program& p : role.programs) {
      digests.push_back(program::communication_digest(p));
      names.push_back(fmt::format("'{}' of {}", p.name, role.name));
    }
  auto count = static_cast<std::int64_t>(digests.size());
  world.broadcast(std::as_writable_bytes(std::span(&count, 1)), 0);
  std::vector<std::uint64_t> theirs(digests);
  theirs.resize(static_cast<std::size_t>(count));
  world.broadcast(std::as_writable_bytes(std::span(theirs)), 0);
  std::string different;
  if (theirs != digests) {
    const auto at = static_cast<std::size_t>(
        std::mismatch(digests.begin(), digests.end(), theirs.begin(), theirs.end()).first - digests.begin());
    different = fmt::format(
        "the processes of this run compiled different programs: rank 0 and rank {} differ in what {} exchanges; are "
        "they of one build?",
        world.rank(), at < names.size() ? names[at] : "a role");
  }
  refuse_together(different, world);
}

}  // namespace trireme::train
