#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace trireme::data {

// A file's bytes, mapped read-only.
class MappedFile {
 public:
  // Refuses a file that cannot be read, with the reason.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace trireme::data
