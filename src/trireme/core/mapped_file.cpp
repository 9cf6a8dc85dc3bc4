#include "trireme/core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "trireme/core/error.h"

namespace trireme {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Opening a pipe must not wait for somebody who writes to it: it is refused below.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) refuse("{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  void* mapping = nullptr;
  if (known && status.st_size > 0)
    mapping = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  if (!known) refuse("{}: is not a regular file", path);
  if (mapping == MAP_FAILED) refuse("{}: cannot be mapped: {}", path, std::strerror(error));
  data_ = static_cast<const std::byte*>(mapping);
  size_ = static_cast<std::size_t>(status.st_size);
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::read(const std::byte* at, std::span<std::byte> out) const {
  TRI_CHECK(at >= data_ && at + out.size() <= data_ + size_, "{}: {} bytes beyond its end", path_, out.size());
  // The system copies, and says where it cannot; a load of this process would raise SIGBUS.
  const iovec to{out.data(), out.size()};
  const iovec from{const_cast<std::byte*>(at), out.size()};
  const ssize_t copied = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
  const bool forbidden = copied < 0 && (errno == EPERM || errno == ENOSYS);
  if (forbidden) check_whole();
  if (forbidden) std::memcpy(out.data(), at, out.size());  // some containers
  // Behind the end of a file that was cut, the rest of a page reads as zeros.
  check_whole();
  if (!forbidden && copied != static_cast<ssize_t>(out.size()))
    fail("{}: {} bytes of it cannot be read any more", path_, out.size());
}

void MappedFile::check_whole() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) return;
  if (static_cast<std::size_t>(status.st_size) < size_)
    fail("{}: was cut from {} to {} bytes while it was being read", path_, size_, status.st_size);
}

void MappedFile::release(std::size_t offset, std::size_t size) const {
  // Advice is given for whole pages. A neighbour's bytes on the first and last one are lost from memory, not from
  // sight.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;
  const std::size_t end = std::min(offset + size, size_);
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::expect_random_reads() {
  const auto memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  // Advice only. Reading ahead is what fills the cache where the file fits.
  if (size_ > memory / 2) ::madvise(const_cast<std::byte*>(data_), size_, MADV_RANDOM);
}

}  // namespace trireme
