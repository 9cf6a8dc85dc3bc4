#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

// Where a run's checkpoints lie, which of them stay, and how one takes its place among them.
namespace trireme::train {

// checkpoints/step-00000100/. Each is complete or absent: written aside as step-00000100.partial, synced, renamed.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run, std::int64_t step);
std::filesystem::path unfinished_folder(const std::filesystem::path& run, std::int64_t step);
// The steps that have a folder, newest first.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& run);

// Gives the unfinished folder of a step its name. One that has it is replaced at once; where the file system cannot do
// that, it has another name for a moment (restore_replaced).
void put_in_place(const std::filesystem::path& run, std::int64_t step);

// A folder that is being removed is no checkpoint any more: should that be cut short, none is found half gone.
void remove_checkpoint(const std::filesystem::path& folder);

// Removes all but the newest `keep` of the checkpoints up to `step`, not counting those known to be `broken`, which go
// too. (Later ones are broken ones that a resumed run has not come to yet.)
void prune_checkpoints(const std::filesystem::path& run, std::int64_t step, std::int64_t keep,
                       std::span<const std::int64_t> broken = {});
// Where their disk has no room for one more checkpoint: removes those that are `broken`, and then the oldest before
// `step`, until it has, and never the newest that is good. Gives the steps of those that are gone.
std::vector<std::int64_t> make_room(const std::filesystem::path& run, std::int64_t step,
                                    std::span<const std::int64_t> broken = {});

// After a run that was killed, and only for the process that owns it now: what was about to be replaced has its name
// back, where nothing has taken it.
void restore_replaced(const std::filesystem::path& run);
// And what was left half written or half removed goes.
void remove_unfinished(const std::filesystem::path& run);

}  // namespace trireme::train
