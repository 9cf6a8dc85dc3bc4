#include "trireme/device/tier_file.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::device {
namespace {

namespace fs = std::filesystem;

// Requests large enough for a disk to be at its best, and enough of them that it never waits for us.
constexpr std::size_t kRequest = std::size_t{256} << 10;
constexpr unsigned kDepth = 16;

std::string key(const fs::path& folder) { return fmt::format("memory.offload_dir = \"{}\"", folder.string()); }

// A file without a name; where the file system has none, a file whose name is gone at once.
int open_nameless(const fs::path& folder, int flags) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string name = (folder / ".trireme-offload-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

std::string free_room(int file) {
  struct statvfs room {};
  if (::fstatvfs(file, &room) != 0) return "an unknown amount";
  return format_bytes(static_cast<std::size_t>(room.f_bavail) * room.f_frsize);
}

}  // namespace

TierFile::TierFile(const fs::path& folder, std::size_t bytes)
    : folder_(folder), bytes_((bytes + kPage - 1) / kPage * kPage) {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown))
    refuse("{}: {}", key(folder), fs::exists(folder, unknown) ? "is no folder" : "there is no such folder");
  file_ = open_nameless(folder, O_DIRECT);
  if (file_ < 0 && errno == EINVAL) {
    direct_ = false;
    file_ = open_nameless(folder, 0);
  }
  if (file_ < 0)
    refuse("{}: a file of {} for offloaded tensors cannot be made there: {}", key(folder), format_bytes(bytes_),
           std::strerror(errno));
  int error = 0;
  while (bytes_ > 0 && (error = ::fallocate(file_, 0, 0, static_cast<off_t>(bytes_)) == 0 ? 0 : errno) == EINTR) {
  }
  // A file system that cannot take room beforehand: then its size alone is set, and what is free decides.
  if (error == EOPNOTSUPP) error = ::ftruncate(file_, static_cast<off_t>(bytes_)) == 0 ? 0 : errno;
  if (error != 0) {
    const std::string room = free_room(file_);
    ::close(file_);
    refuse(
        "{}: offloaded tensors need {} there, and {} is free: {}; another folder, a smaller model or less in "
        "memory.offload would fit",
        key(folder), format_bytes(bytes_), room, std::strerror(error));
  }
}

TierFile::~TierFile() {
  if (file_ >= 0) ::close(file_);
}

// The one place that knows io_uring.
class TierChannel::Ring {
 public:
  static std::unique_ptr<Ring> make() {
    std::unique_ptr<Ring> ring(new Ring);
    if (::io_uring_queue_init(kDepth, &ring->ring_, 0) != 0) return nullptr;
    ring->open_ = true;
    return ring;
  }
  ~Ring() {
    if (open_) ::io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // 0, or the error that ended it.
  int transfer(int file, std::size_t offset, std::byte* memory, std::size_t bytes, bool writes) {
    std::size_t next = 0;
    unsigned flying = 0;
    int error = 0;
    std::array<Request, kDepth> requests{};
    std::array<unsigned, kDepth> free{};
    unsigned idle = 0;
    for (; idle < kDepth; ++idle) free[idle] = idle;
    const auto send = [&](unsigned slot) {
      const Request& r = requests[slot];
      io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
      const auto size = static_cast<unsigned>(r.bytes);
      if (writes)
        ::io_uring_prep_write(entry, file, memory + r.begin, size, offset + r.begin);
      else
        ::io_uring_prep_read(entry, file, memory + r.begin, size, offset + r.begin);
      ::io_uring_sqe_set_data64(entry, slot);
      ++flying;
    };
    while (flying > 0 || (next < bytes && error == 0)) {
      while (error == 0 && next < bytes && idle > 0) {
        const unsigned slot = free[--idle];
        requests[slot] = {next, std::min(kRequest, bytes - next)};
        next += requests[slot].bytes;
        send(slot);
      }
      if (const int sent = ::io_uring_submit_and_wait(&ring_, 1); sent < 0 && sent != -EINTR && sent != -EAGAIN)
        return -sent;  // requests in flight, if any, end with the ring
      io_uring_cqe* entry = nullptr;
      while (::io_uring_peek_cqe(&ring_, &entry) == 0) {
        const auto slot = static_cast<unsigned>(::io_uring_cqe_get_data64(entry));
        const int result = entry->res;
        ::io_uring_cqe_seen(&ring_, entry);
        --flying;
        Request& r = requests[slot];
        if (result > 0) {
          r.begin += static_cast<std::size_t>(result);
          r.bytes -= static_cast<std::size_t>(result);
        } else if (result != -EINTR && result != -EAGAIN) {
          error = result == 0 ? EIO : -result;
        }
        if (error == 0 && r.bytes > 0)
          send(slot);
        else
          free[idle++] = slot;
      }
    }
    return error;
  }

 private:
  struct Request {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  Ring() = default;

  io_uring ring_{};
  bool open_ = false;
};

TierChannel::TierChannel(const TierFile& file) : file_(file), ring_(Ring::make()) {}
TierChannel::~TierChannel() = default;

bool TierChannel::asynchronous() const { return ring_ != nullptr; }

namespace {

int transfer_in_turn(int file, std::size_t offset, std::byte* memory, std::size_t bytes, bool writes) {
  while (bytes > 0) {
    const std::size_t size = std::min(kRequest, bytes);
    const ssize_t done = writes ? ::pwrite(file, memory, size, static_cast<off_t>(offset))
                                : ::pread(file, memory, size, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done == 0 ? EIO : errno;
    offset += static_cast<std::size_t>(done);
    memory += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return 0;
}

}  // namespace

void TierChannel::transfer(std::size_t offset, std::byte* memory, std::size_t bytes, bool writes) {
  TRI_CHECK(offset % TierFile::kPage == 0 && bytes % TierFile::kPage == 0 &&
                reinterpret_cast<std::uintptr_t>(memory) % TierFile::kPage == 0,
            "a transfer of {} bytes at {} is not of whole pages", bytes, offset);
  TRI_CHECK(offset + bytes <= file_.bytes(), "a transfer to {} in a file of {} bytes", offset + bytes, file_.bytes());
  const int error = ring_ ? ring_->transfer(file_.descriptor(), offset, memory, bytes, writes)
                          : transfer_in_turn(file_.descriptor(), offset, memory, bytes, writes);
  if (error != 0)
    fail("{}: {} {} of offloaded tensors failed: {}", key(file_.folder()), writes ? "writing" : "reading",
         format_bytes(bytes), std::strerror(error));
}

void TierChannel::write(std::size_t offset, std::span<const std::byte> from) {
  transfer(offset, const_cast<std::byte*>(from.data()), from.size(), true);
}

void TierChannel::read(std::size_t offset, std::span<std::byte> to) { transfer(offset, to.data(), to.size(), false); }

}  // namespace trireme::device
