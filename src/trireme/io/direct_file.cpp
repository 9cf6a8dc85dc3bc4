#include "trireme/io/direct_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::io {
namespace {

[[noreturn]] void cannot_write(const std::string& path, int error) {
  fail("cannot write {}: {}", path, std::strerror(error));
}

// Asked first: an attempt that fails half-way would leave nobody else any room meanwhile.
void check_room(int file, const std::string& path, std::uint64_t bytes) {
  struct statvfs disk {};
  if (::fstatvfs(file, &disk) != 0) return;
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (disk.f_blocks > 0 && free < bytes)
    fail("cannot write {}: {}: it takes {}, {} are left", path, std::strerror(ENOSPC), format_bytes(bytes),
         format_bytes(free));
}

}  // namespace

DirectFile::DirectFile(std::string path, std::uint64_t bytes) : path_(std::move(path)), bytes_(bytes) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  file_ = ::open(path_.c_str(), kFlags | O_DIRECT, 0666);
  // Some file systems refuse O_DIRECT only after the file was made.
  if (file_ < 0 && errno == EINVAL) {
    ::unlink(path_.c_str());
    file_ = ::open(path_.c_str(), kFlags, 0666);
  }
  if (file_ < 0) cannot_write(path_, errno);
  try {
    check_room(file_, path_, bytes_);
    if (bytes_ > 0 && ::fallocate(file_, 0, 0, static_cast<off_t>(bytes_)) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS)
      cannot_write(path_, errno);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

DirectFile::~DirectFile() {
  if (file_ >= 0) ::close(file_);
}

void DirectFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) cannot_write(path_, written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
    // The rest after a short write may not be aligned any more.
    if (static_cast<std::size_t>(written) % kAlignment != 0)
      if (const int flags = ::fcntl(file_, F_GETFL); flags >= 0) ::fcntl(file_, F_SETFL, flags & ~O_DIRECT);
  }
}

void DirectFile::finish() {
  if (::ftruncate(file_, static_cast<off_t>(bytes_)) != 0 || ::fsync(file_) != 0) cannot_write(path_, errno);
  if (::close(std::exchange(file_, -1)) != 0) cannot_write(path_, errno);
}

}  // namespace trireme::io
