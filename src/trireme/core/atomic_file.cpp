#include "trireme/core/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "trireme/core/aside.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

constexpr std::string_view kPart = "part";

[[noreturn]] void cannot_write(const std::string& path) { fail("cannot write {}: {}", path, std::strerror(errno)); }

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool keeps_nothing(const std::string& path) {
  struct stat there {};
  return ::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode);
}

// What the system calls a file that is open here.
std::string own_link(int file) { return fmt::format("/proc/self/fd/{}", file); }

// A file without a name, to which `own_link` can give one; -1 where there are none. Nothing is left of it when the
// process is killed.
int open_unnamed(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (file < 0 || ::access(own_link(file).c_str(), F_OK) == 0) return file;
  ::close(file);
  return -1;
}

// Calls `take(name)` for names next to `path` until one is free: O_EXCL and link() make it ours alone, since several
// ranks, or several processes, may write to one folder.
template <typename Take>
std::string take_name(const std::string& path, const Take& take) {
  for (int attempt = 0;; ++attempt) {
    std::string name = aside_name(path, kPart, attempt);
    if (take(name)) return name;
    if (errno != EEXIST) cannot_write(path);
  }
}

}  // namespace

bool exchange_names(const std::string& one, const std::string& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

// A rename is lasting only once the folder that holds the name is on the disk too.
void sync_folder(const std::string& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) cannot_write(folder);
  // EINVAL: a file system that has no such notion.
  const bool flushed = ::fsync(handle) == 0 || errno == EINVAL;
  const int error = errno;
  ::close(handle);
  errno = error;
  if (!flushed) cannot_write(folder);
}

void remove_unfinished(const std::string& folder) {
  std::vector<std::filesystem::path> unfinished;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (is_abandoned(entry.path().filename().string(), kPart)) unfinished.push_back(entry.path());
  for (const auto& path : unfinished) std::filesystem::remove(path, ignored);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string behind_links(const std::string& path) {
  constexpr int kMost = 40;  // as the system has it
  std::filesystem::path at = path;
  std::error_code unknown;
  for (int links = 0; links < kMost && std::filesystem::is_symlink(at, unknown); ++links)
    at = at.parent_path() / std::filesystem::read_symlink(at, unknown);
  return at.string();
}

void check_replaceable(const std::string& path, std::string_view beginning, std::string_view kind,
                       const std::string& given) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return;
  // Somewhere that keeps nothing (/dev/null, a pipe) has nothing to lose.
  const bool keeps = std::filesystem::is_regular_file(path, unknown);
  if (!keeps && !std::filesystem::is_directory(path, unknown)) return;
  std::string there(beginning.size(), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(there.data(), std::ssize(there));
  there.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  if (keeps && (there == beginning || (there.empty() && std::filesystem::file_size(path, unknown) == 0))) return;
  refuse("{}: that is there, and is no {}; name another file", given, kind);
}

void check_file_writable(const std::string& path, const std::string& given) {
  if (::access(path.c_str(), F_OK) == 0) {
    if (::access(path.c_str(), W_OK) != 0) refuse("{} cannot be written: {}", given, std::strerror(errno));
    if (keeps_nothing(path)) return;
  }
  try {
    const AtomicFile probe(path);
  } catch (const Error& error) {
    refuse("{}: {}", given, error.message());
  }
}

AtomicFile::AtomicFile(const std::string& path) : path_(behind_links(path)) {
  if (keeps_nothing(path_)) {
    kind_ = Kind::in_place;
    file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (file_ < 0) cannot_write(path_);
    return;
  }
  file_ = open_unnamed(folder_of(path_));
  if (file_ >= 0) return;
  kind_ = Kind::named;
  aside_ = take_name(path_, [&](const std::string& name) {
    file_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return file_ >= 0;
  });
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kOneCall = std::size_t{1} << 30;  // Linux takes a little under 2 GiB at a time
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), std::min(bytes.size(), kOneCall));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::rewrite(std::uint64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(file_, text.data(), text.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(path_);
    text.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0 && kind_ != Kind::in_place) cannot_write(path_);
  // link() gives a name, but not one that is taken: so the file gets its own by way of another.
  if (kind_ == Kind::unnamed)
    aside_ = take_name(path_, [&](const std::string& name) {
      return ::linkat(AT_FDCWD, own_link(file_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    });
  if (::close(std::exchange(file_, -1)) != 0) cannot_write(path_);
  if (kind_ == Kind::in_place) return;
  if (std::rename(aside_.c_str(), path_.c_str()) != 0) cannot_write(path_);
  aside_.clear();
  sync_folder(folder_of(path_));
}

}  // namespace trireme
