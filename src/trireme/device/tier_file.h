#pragma once
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/core/option_names.h"

namespace trireme::device {

// A memory tier on disk: one file that has no name, so that nothing of it is left when the process ends, however it
// ends. Its room is taken when it is made. Reads and writes pass by the operating system's cache where the file system
// can do that.
class TierFile {
 public:
  // What offsets, addresses and sizes of transfers must be multiples of.
  static constexpr std::size_t kPage = 4096;

  // Refuses, naming the folder and how much was asked for, a folder that is missing, cannot be written or has no room.
  // `names`: what messages call the option that named the folder.
  TierFile(const std::filesystem::path& folder, std::size_t bytes, const OptionNames& names = {});
  ~TierFile();
  TierFile(const TierFile&) = delete;
  TierFile& operator=(const TierFile&) = delete;

  std::size_t bytes() const { return bytes_; }
  const std::filesystem::path& folder() const { return folder_; }
  // As messages name it: "offload_dir = "/scratch"".
  std::string named() const;
  int descriptor() const { return file_; }
  // False where the file system cannot: transfers then go through the cache.
  bool direct() const { return direct_; }

 private:
  std::filesystem::path folder_;
  std::string_view option_;
  std::size_t bytes_;
  int file_ = -1;
  bool direct_ = true;
};

// Transfers to and from a tier file, several requests at a time, by io_uring or, where the system refuses that, one
// after another. Each thread has its own.
class TierChannel {
 public:
  // `file` must outlive the channel.
  explicit TierChannel(const TierFile& file);
  ~TierChannel();
  TierChannel(const TierChannel&) = delete;
  TierChannel& operator=(const TierChannel&) = delete;

  // Returns when all of it is done; throws, naming the folder, when it cannot be. None may be on their way.
  void write(std::size_t offset, std::span<const std::byte> from);
  void read(std::size_t offset, std::span<std::byte> to);

  // Transfers that may be on their way at once, so that the disk has the requests of one before it is done with those
  // of the last: small ones alone would let it wait between them. Their order is not kept.
  static constexpr std::size_t kAhead = 4;
  void begin_write(std::size_t tag, std::size_t offset, std::span<const std::byte> from);
  void begin_read(std::size_t tag, std::size_t offset, std::span<std::byte> to);
  std::size_t on_their_way() const { return begun_; }
  struct Ended {
    std::size_t tag = 0;
    std::string error;  // empty: done
  };
  // Waits for one of those on their way.
  Ended wait();

  bool asynchronous() const;

 private:
  class Ring;
  struct Transfer {
    std::size_t tag = 0;
    std::size_t offset = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    bool writes = false;
  };
  void begin(const Transfer& transfer);
  void run(const Transfer& transfer);
  std::string failure(const Transfer& transfer, int error) const;

  const TierFile& file_;
  std::unique_ptr<Ring> ring_;  // null: one request after another
  std::size_t begun_ = 0;
  std::array<Ended, kAhead> ended_;  // without a ring: of those begun
};

}  // namespace trireme::device
