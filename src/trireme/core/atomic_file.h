#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// A file that appears whole or not at all: written without a name in the same folder (under another name where the file
// system has no such files), flushed to the disk, then renamed over the target. A reader of the target sees the old
// content or the new one, also after a crash.
//
//   AtomicFile file("run.json");
//   file.write(text);
//   file.commit();      // without it the target stays as it was
//
// A link stays one: what it leads to is replaced. What is there and keeps nothing (a device such as /dev/null, a pipe)
// is written in place and stays what it is. Every failure is an Error that names the target.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // In place of bytes that were written before.
  void rewrite(std::uint64_t offset, std::string_view text);
  void commit();

 private:
  enum class Kind { unnamed, named, in_place };

  std::string path_;
  std::string aside_;  // its name until it is renamed, where it has one
  Kind kind_ = Kind::unnamed;
  int file_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view text);

// What a link leads to, where a link is what a person has named: it is to stay one. Other paths as they are.
std::string behind_links(const std::string& path);

// Refuses to replace what somebody else wrote: a file of that name must begin as those of this kind do, or be empty.
// `given` is the option or key with its value; kind: "trace".
void check_replaceable(const std::string& path, std::string_view beginning, std::string_view kind,
                       const std::string& given);

// Refuses what could not be written, before the work that would be lost; leaves nothing. `given` as above.
void check_file_writable(const std::string& path, const std::string& given);

// Removes what files that never were committed have left in `folder`, by processes of this machine that have ended.
void remove_unfinished(const std::string& folder);

// Gives each of two files or folders the other's name, at once. False where the file system cannot.
bool exchange_names(const std::string& one, const std::string& other);

// Makes renames inside `folder` lasting.
void sync_folder(const std::string& folder);

}  // namespace trireme
