#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "fuzz/targets.h"

namespace trireme::fuzz {

// Bytes as a file that exists in memory alone, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(Input bytes) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const auto wrote = ::write(file_, bytes.data() + done, bytes.size() - done);
      if (wrote <= 0) std::abort();
      done += static_cast<std::size_t>(wrote);
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace trireme::fuzz
