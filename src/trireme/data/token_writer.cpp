#include "trireme/data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

constexpr std::size_t kHeaderWords = 256;

[[noreturn]] void cannot_write(const std::string& path) { fail("cannot write {}: {}", path, std::strerror(errno)); }

// What the system calls a file that is open here.
std::string own_link(int file) { return fmt::format("/proc/self/fd/{}", file); }

}  // namespace

TokenWriter::TokenWriter(std::string path, TokenFormat format, TokenType type)
    : path_(std::move(path)), aside_(fmt::format("{}.{}.tmp", path_, ::getpid())), format_(format), type_(type) {
  const std::string folder = std::filesystem::absolute(path_).parent_path().string();
  file_ = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  nameless_ = file_ >= 0 && ::access(own_link(file_).c_str(), F_OK) == 0;
  if (nameless_) return;
  if (file_ >= 0) ::close(file_);
  file_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) cannot_write(path_);
}

TokenWriter::~TokenWriter() {
  if (file_ >= 0) ::close(file_);
  if (!aside_.empty() && !nameless_) ::unlink(aside_.c_str());
}

std::uint64_t TokenWriter::bytes() const {
  const std::uint64_t header = format_ == TokenFormat::llmc ? kHeaderWords * sizeof(std::uint32_t) : 0;
  return header + tokens_ * static_cast<std::uint64_t>(type_);
}

void TokenWriter::put(const void* data, std::size_t size, std::int64_t offset) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(file_, at, size, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) cannot_write(path_);
    at += written;
    offset += written;
    size -= static_cast<std::size_t>(written);
  }
}

void TokenWriter::write(std::span<const std::int32_t> tokens) {
  const auto offset = static_cast<std::int64_t>(bytes());
  if (type_ == TokenType::u16) {
    narrow_.resize(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      TRI_CHECK(tokens[i] >= 0 && tokens[i] <= 0xFFFF, "token {} does not fit uint16", tokens[i]);
      narrow_[i] = static_cast<std::uint16_t>(tokens[i]);
    }
    put(narrow_.data(), narrow_.size() * sizeof(std::uint16_t), offset);
  } else {
    put(tokens.data(), tokens.size_bytes(), offset);
  }
  tokens_ += tokens.size();
}

void TokenWriter::commit() {
  if (format_ == TokenFormat::llmc) {
    if (tokens_ > 0xFFFFFFFF)
      fail("{}: llm.c's format counts tokens in 32 bits and cannot hold {}; write it raw or as several files", path_,
           tokens_);
    std::array<std::uint32_t, kHeaderWords> header{};
    const bool narrow = type_ == TokenType::u16;
    header[0] = narrow ? 20240520 : 20240801;
    header[1] = narrow ? 1 : 7;
    header[2] = static_cast<std::uint32_t>(tokens_);
    put(header.data(), sizeof header, 0);
  }
  if (::fsync(file_) != 0) cannot_write(path_);
  // A name can be given to such a file, but not one that is taken: so it gets its own by way of another.
  if (nameless_ && ::linkat(AT_FDCWD, own_link(file_).c_str(), AT_FDCWD, aside_.c_str(), AT_SYMLINK_FOLLOW) != 0)
    cannot_write(path_);
  nameless_ = false;
  if (::close(std::exchange(file_, -1)) != 0) cannot_write(path_);
  if (std::rename(aside_.c_str(), path_.c_str()) != 0) cannot_write(path_);
  aside_.clear();
}

}  // namespace trireme::data
