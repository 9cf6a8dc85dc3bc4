#include "trireme/train/checkpoint_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/core/atomic_file.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".partial";
constexpr std::string_view kReplaced = ".replaced";

fs::path with_ending(const fs::path& folder, std::string_view ending) { return folder.string() + std::string(ending); }

// The step of "step-00000100"; nothing for other names.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

// Steps whose folder is there with this after its name.
std::vector<std::int64_t> steps_with(const fs::path& run, std::string_view ending) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(ending)) continue;
    if (const auto step = step_of(std::string_view(name).substr(0, name.size() - ending.size())))
      steps.push_back(*step);
  }
  return steps;
}

}  // namespace

void remove_checkpoint(const fs::path& folder) {
  const fs::path aside = with_ending(folder, kUnfinished);
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  fs::rename(folder, aside, ignored);
  fs::remove_all(aside, ignored);
}

fs::path checkpoint_folder(const fs::path& run, std::int64_t step) {
  return run / "checkpoints" / fmt::format("{}{:08}", kPrefix, step);
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& run) {
  std::vector<std::int64_t> steps = steps_with(run, "");
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

fs::path unfinished_folder(const fs::path& run, std::int64_t step) {
  return with_ending(checkpoint_folder(run, step), kUnfinished);
}

void put_in_place(const fs::path& run, std::int64_t step) {
  const fs::path target = checkpoint_folder(run, step);
  const fs::path aside = unfinished_folder(run, step);
  const fs::path replaced = with_ending(target, kReplaced);
  if (!fs::exists(target)) {
    fs::rename(aside, target);
  } else if (!exchange_names(aside.string(), target.string())) {
    fs::remove_all(replaced);
    fs::rename(target, replaced);
    fs::rename(aside, target);
  }
  sync_folder(target.parent_path().string());
  sync_folder(run.string());  // `checkpoints` itself may be new
  std::error_code ignored;
  for (const fs::path& old : {aside, replaced}) fs::remove_all(old, ignored);
}

void prune_checkpoints(const fs::path& run, std::int64_t step, std::int64_t keep,
                       std::span<const std::int64_t> broken) {
  std::int64_t kept = 0;
  for (const std::int64_t other : checkpoint_steps(run)) {
    if (other > step) continue;
    const bool bad = other != step && std::find(broken.begin(), broken.end(), other) != broken.end();
    if (bad || ++kept > std::max<std::int64_t>(keep, 1)) remove_checkpoint(checkpoint_folder(run, other));
  }
}

std::vector<std::int64_t> make_room(const fs::path& run, std::int64_t step, std::span<const std::int64_t> broken) {
  std::vector<std::int64_t> good = checkpoint_steps(run), bad = good, gone;
  const auto is_broken = [&](std::int64_t other) {
    return std::find(broken.begin(), broken.end(), other) != broken.end();
  };
  std::erase_if(good, [&](std::int64_t other) { return other >= step || is_broken(other); });
  std::erase_if(bad, [&](std::int64_t other) { return !is_broken(other); });
  if (good.empty()) return gone;
  // One is as large as the other, but for what says which step it is.
  constexpr std::uintmax_t kMore = 64 * 1024;
  std::uintmax_t needed = kMore;
  std::error_code unknown;
  for (const fs::directory_entry& file :
       fs::recursive_directory_iterator(checkpoint_folder(run, good.front()), unknown))
    if (file.is_regular_file(unknown)) needed += file.file_size(unknown);
  const auto lacks_room = [&] {
    const fs::space_info space = fs::space(run / "checkpoints", unknown);  // they may lie on a disk of their own
    return !unknown && space.available < needed;
  };
  const auto remove_last = [&](std::vector<std::int64_t>& steps) {
    remove_checkpoint(checkpoint_folder(run, steps.back()));
    gone.push_back(steps.back());
    steps.pop_back();
  };
  while (!bad.empty() && lacks_room()) remove_last(bad);
  while (good.size() > 1 && lacks_room()) remove_last(good);
  return gone;
}

void restore_replaced(const fs::path& run) {
  std::error_code ignored;
  for (const std::int64_t step : steps_with(run, kReplaced)) {
    const fs::path folder = checkpoint_folder(run, step);
    if (!fs::exists(folder, ignored)) fs::rename(with_ending(folder, kReplaced), folder, ignored);
  }
}

void remove_unfinished(const fs::path& run) {
  std::error_code ignored;
  for (const std::string_view ending : {kUnfinished, kReplaced})
    for (const std::int64_t step : steps_with(run, ending))
      fs::remove_all(with_ending(checkpoint_folder(run, step), ending), ignored);
}

}  // namespace trireme::train
