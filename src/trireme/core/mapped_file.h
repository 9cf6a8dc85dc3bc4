#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace trireme {

// A file's bytes, mapped read-only.
class MappedFile {
 public:
  // Refuses a file that cannot be read: "PATH: cannot be opened: …".
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        path_(std::move(other.path_)),
        device_(other.device_),
        inode_(other.inode_) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(path_, other.path_);
    std::swap(device_, other.device_);
    std::swap(inode_, other.inode_);
    return *this;
  }

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Copies some of `bytes()`, from `at` on. Fails where the file has become shorter since, or its disk cannot be read
  // any more: looking at such bytes would end the process. What takes its name meanwhile is another file and does not
  // matter.
  void read(const std::byte* at, std::span<std::byte> out) const;
  // Fails where the file has become shorter.
  void check_whole() const;
  // Gives the memory of these bytes back: they are read from the file again when next looked at.
  void release(std::size_t offset, std::size_t size) const;
  // Parts will be read in no order: of a file that memory cannot hold, the system should not read ahead.
  void expect_random_reads();

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string path_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace trireme
