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

std::string TierFile::named() const { return fmt::format("{} = \"{}\"", option_, folder_.string()); }

TierFile::TierFile(const fs::path& folder, std::size_t bytes, const OptionNames& names)
    : folder_(folder), option_(names.offload_dir), bytes_((bytes + kPage - 1) / kPage * kPage) {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown))
    refuse("{}: {}", named(), fs::exists(folder, unknown) ? "is no folder" : "there is no such folder");
  file_ = open_nameless(folder, O_DIRECT);
  if (file_ < 0 && errno == EINVAL) {
    direct_ = false;
    file_ = open_nameless(folder, 0);
  }
  if (file_ < 0)
    refuse("{}: a file of {} for offloaded tensors cannot be made there: {}", named(), format_bytes(bytes_),
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
        "{}: offloaded tensors need {} there, and {} is free: {}; another folder, a smaller model or less in {} "
        "would fit",
        named(), format_bytes(bytes_), room, std::strerror(error), names.offload);
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

  void begin(int file, const Transfer& transfer) {
    file_ = file;
    const auto place = std::find_if(places_.begin(), places_.end(), [](const Place& p) { return !p.open; });
    *place = {.transfer = transfer, .begun = ++begun_, .open = true};
    send_requests();
    if (broken_ == 0) check(::io_uring_submit(&ring_));
  }

  // One that has ended, and its error or 0.
  std::pair<Transfer, int> wait() {
    for (;;) {
      for (Place& p : places_) {
        const bool ended = broken_ != 0 || (p.flying == 0 && (p.next == p.transfer.bytes || p.error != 0));
        if (!p.open || !ended) continue;
        p.open = false;
        return {p.transfer, broken_ != 0 ? broken_ : p.error};
      }
      send_requests();
      check(::io_uring_submit_and_wait(&ring_, 1));
      io_uring_cqe* entry = nullptr;
      while (broken_ == 0 && ::io_uring_peek_cqe(&ring_, &entry) == 0) {
        const auto slot = static_cast<unsigned>(::io_uring_cqe_get_data64(entry));
        const int result = entry->res;
        ::io_uring_cqe_seen(&ring_, entry);
        take(slot, result);
      }
    }
  }

 private:
  // A transfer on its way.
  struct Place {
    Transfer transfer;
    std::uint64_t begun = 0;
    std::size_t next = 0;  // bytes that were asked for
    unsigned flying = 0;   // requests
    int error = 0;
    bool open = false;
  };
  struct Request {
    Place* place = nullptr;
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  Ring() {
    for (; idle_ < kDepth; ++idle_) free_[idle_] = idle_;
  }

  void send(unsigned slot) {
    const Request& r = requests_[slot];
    const Transfer& t = r.place->transfer;
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    const auto size = static_cast<unsigned>(r.bytes);
    if (t.writes)
      ::io_uring_prep_write(entry, file_, t.memory + r.begin, size, t.offset + r.begin);
    else
      ::io_uring_prep_read(entry, file_, t.memory + r.begin, size, t.offset + r.begin);
    ::io_uring_sqe_set_data64(entry, slot);
    ++r.place->flying;
  }

  // As many as there is room for, those of the transfer that began first before others.
  void send_requests() {
    while (idle_ > 0) {
      Place* first = nullptr;
      for (Place& p : places_)
        if (p.open && p.error == 0 && p.next < p.transfer.bytes && (first == nullptr || p.begun < first->begun))
          first = &p;
      if (first == nullptr) return;
      const unsigned slot = free_[--idle_];
      requests_[slot] = {first, first->next, std::min(kRequest, first->transfer.bytes - first->next)};
      first->next += requests_[slot].bytes;
      send(slot);
    }
  }

  void take(unsigned slot, int result) {
    Request& r = requests_[slot];
    --r.place->flying;
    if (result > 0) {
      r.begin += static_cast<std::size_t>(result);
      r.bytes -= static_cast<std::size_t>(result);
    } else if (result != -EINTR && result != -EAGAIN) {
      r.place->error = result == 0 ? EIO : -result;
    }
    if (r.place->error == 0 && r.bytes > 0)
      send(slot);
    else
      free_[idle_++] = slot;
  }

  // Requests in flight, if any, end with the ring.
  void check(int sent) {
    if (sent < 0 && sent != -EINTR && sent != -EAGAIN && sent != -EBUSY) broken_ = -sent;
  }

  io_uring ring_{};
  bool open_ = false;
  int file_ = -1;
  int broken_ = 0;
  std::uint64_t begun_ = 0;
  std::array<Place, kAhead> places_{};
  std::array<Request, kDepth> requests_{};
  std::array<unsigned, kDepth> free_{};
  unsigned idle_ = 0;
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

std::string TierChannel::failure(const Transfer& t, int error) const {
  return fmt::format("{}: {} {} of offloaded tensors failed: {}", file_.named(), t.writes ? "writing" : "reading",
                     format_bytes(t.bytes), std::strerror(error));
}

void TierChannel::begin(const Transfer& t) {
  TRI_CHECK(t.offset % TierFile::kPage == 0 && t.bytes % TierFile::kPage == 0 &&
                reinterpret_cast<std::uintptr_t>(t.memory) % TierFile::kPage == 0,
            "a transfer of {} bytes at {} is not of whole pages", t.bytes, t.offset);
  TRI_CHECK(t.offset + t.bytes <= file_.bytes(), "a transfer to {} in a file of {} bytes", t.offset + t.bytes,
            file_.bytes());
  TRI_CHECK(begun_ < kAhead, "{} transfers are on their way", begun_);
  if (ring_) {
    ring_->begin(file_.descriptor(), t);
  } else {
    const int error = transfer_in_turn(file_.descriptor(), t.offset, t.memory, t.bytes, t.writes);
    ended_[begun_] = {t.tag, error == 0 ? "" : failure(t, error)};
  }
  ++begun_;
}

TierChannel::Ended TierChannel::wait() {
  TRI_CHECK(begun_ > 0, "no transfer is on its way");
  --begun_;
  if (!ring_) return std::move(ended_[begun_]);
  const auto [transfer, error] = ring_->wait();
  return {transfer.tag, error == 0 ? "" : failure(transfer, error)};
}

void TierChannel::run(const Transfer& transfer) {
  TRI_CHECK(begun_ == 0, "{} transfers are on their way", begun_);
  begin(transfer);
  if (const Ended ended = wait(); !ended.error.empty()) fail("{}", ended.error);
}

void TierChannel::begin_write(std::size_t tag, std::size_t offset, std::span<const std::byte> from) {
  begin({tag, offset, const_cast<std::byte*>(from.data()), from.size(), true});
}

void TierChannel::begin_read(std::size_t tag, std::size_t offset, std::span<std::byte> to) {
  begin({tag, offset, to.data(), to.size(), false});
}

void TierChannel::write(std::size_t offset, std::span<const std::byte> from) {
  run({0, offset, const_cast<std::byte*>(from.data()), from.size(), true});
}

void TierChannel::read(std::size_t offset, std::span<std::byte> to) { run({0, offset, to.data(), to.size(), false}); }

}  // namespace trireme::device
