#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trireme::io {

// A new file of known size, written past the operating system's cache where the file system can do that: the bytes go
// from the caller's memory to the disk without a processor copying them, and nobody's cached files are pushed out.
//
// Room for the whole file is taken when it is opened, so a full disk shows at once. Every failure is an Error that
// names the file.
class DirectFile {
 public:
  // What addresses, offsets and (but for the last write) sizes must be multiples of.
  static constexpr std::size_t kAlignment = 4096;

  DirectFile(std::string path, std::uint64_t bytes);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // `bytes` may end behind the file's end, in a multiple of kAlignment: what lies behind is cut off by `finish`.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  // Everything is on the disk when this returns.
  void finish();

 private:
  std::string path_;
  std::uint64_t bytes_;
  int file_ = -1;
};

}  // namespace trireme::io
