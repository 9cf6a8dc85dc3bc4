#include "trireme/core/aside.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <vector>

namespace trireme {
namespace {

// ".trireme-new-HOST-": what follows the file's own name.
std::string mark(std::string_view kind) {
  std::array<char, 65> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format(".trireme-{}-{}-", kind, host.data());
}

}  // namespace

std::string aside_name(const std::string& path, std::string_view kind, int attempt) {
  constexpr std::size_t kLetters = 100;  // a name has 255 at most
  const std::filesystem::path place = path;
  const std::string name =
      fmt::format(".{}{}{}-{}", place.filename().string().substr(0, kLetters), mark(kind), ::getpid(), attempt);
  return (place.parent_path() / name).string();
}

std::string make_aside_folder(const std::string& path, std::string_view kind) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent);
  for (int attempt = 0;; ++attempt)
    if (std::string name = aside_name(path, kind, attempt); std::filesystem::create_directory(name)) return name;
}

void remove_abandoned_folders(const std::string& path, std::string_view kind) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::vector<std::filesystem::path> abandoned;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent.empty() ? "." : parent, ignored))
    if (is_abandoned(entry.path().filename().string(), kind)) abandoned.push_back(entry.path());
  for (const auto& folder : abandoned) std::filesystem::remove_all(folder, ignored);
}

bool is_abandoned(std::string_view name, std::string_view kind) {
  const std::string marked = mark(kind);
  const std::size_t at = name.rfind(marked);
  if (!name.starts_with('.') || at == std::string_view::npos || at < 2) return false;
  const char* const end = name.data() + name.size();
  int process = 0;
  int attempt = 0;
  const auto first = std::from_chars(name.data() + at + marked.size(), end, process);
  if (first.ec != std::errc() || process <= 0 || first.ptr == end || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, end, attempt);
  if (second.ec != std::errc() || second.ptr != end || attempt < 0) return false;
  return ::kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace trireme
