#include "trireme/data/text_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "trireme/core/cgroup.h"
#include "trireme/core/error.h"
#include "trireme/core/mapped_file.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"
#include "trireme/data/data_config.h"
#include "trireme/data/find_files.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string output;
  if (!pipe) return output;
  std::array<char, 4096> buffer{};
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
    output.append(buffer.data(), got);
  return output;
}

bool looks_like_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4096> start{};
  file.read(start.data(), start.size());
  return std::find(start.begin(), start.begin() + file.gcount(), '\0') == start.begin() + file.gcount();
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

class Finder {
 public:
  explicit Finder(std::string_view key) : key_(key) {}

  void add_file(const fs::path& path, const std::string& name) {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(path, error);
    if (error) refuse("{}: cannot read {}: {}", key_, path.string(), error.message());
    if (bytes == 0 || !seen_.insert(fs::weakly_canonical(path, error).string()).second) return;
    files_.push_back({path.string(), name, bytes});
  }

  void add_folder(const fs::path& folder) {
    std::error_code error;
    std::vector<fs::path> found;
    fs::recursive_directory_iterator entry(folder, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      if (hidden(entry->path())) {
        entry.disable_recursion_pending();
        continue;
      }
      std::error_code unknown;
      if (entry->is_regular_file(unknown)) found.push_back(entry->path());
    }
    if (error) refuse("{}: cannot read the folder {}: {}", key_, folder.string(), error.message());
    std::sort(found.begin(), found.end());
    for (const fs::path& path : found)
      if (looks_like_text(path)) add_file(path, path.lexically_relative(folder).string());
  }

  std::vector<TextFile> take() { return std::move(files_); }

 private:
  std::string key_;
  std::set<std::string> seen_;
  std::vector<TextFile> files_;
};

}  // namespace

std::vector<std::string> standard_header_folders() {
  std::vector<std::string> folders;
  for (const char* compiler : {"c++", "g++", "clang++"}) {
    const std::string output = output_of(fmt::format("LC_ALL=C {} -E -x c++ -v /dev/null 2>&1", compiler));
    bool listing = false;
    for (const std::string& line : split(output, '\n')) {
      if (line.starts_with("End of search list")) listing = false;
      if (listing && line.find("c++") != std::string::npos) {
        std::error_code unknown;
        const fs::path folder = fs::weakly_canonical(std::string(trim(line)), unknown);
        if (!unknown && fs::is_directory(folder, unknown)) folders.push_back(folder.string());
      }
      if (line.starts_with("#include <")) listing = true;
    }
    if (!folders.empty()) return folders;
  }
  return {kCxxHeaders};
}

std::vector<TextFile> find_text_files(std::span<const std::string> paths, std::string_view key) {
  Finder finder(key);
  for (const std::string& path : paths) {
    if (path == kCxxHeaders) {
      for (const std::string& folder : standard_header_folders()) {
        std::error_code unknown;
        if (!fs::is_directory(folder, unknown))
          refuse(
              "{}: this machine has no C++ standard library headers (no c++ on the path, no {}); name files or "
              "folders of text",
              key, kCxxHeaders);
        finder.add_folder(folder);
      }
      continue;
    }
    std::error_code error;
    const bool there = fs::exists(path, error);
    if (!there && !is_glob(path)) refuse("{}: there is no file or folder {}", key, path);
    for (const std::string& one : there ? std::vector<std::string>{path} : find_files(path, key))
      if (fs::is_directory(one, error))
        finder.add_folder(one);
      else
        finder.add_file(one, fs::path(one).filename().string());
  }
  std::vector<TextFile> files = finder.take();
  if (files.empty()) refuse("{}: no text in {}", key, fmt::join(paths, ", "));
  return files;
}

Split split_files(const std::vector<TextFile>& files, double share, std::uint64_t least) {
  std::uint64_t total = 0;
  for (const TextFile& file : files) total += file.bytes;
  const auto wanted = std::max(least, static_cast<std::uint64_t>(share * static_cast<double>(total)));

  struct Candidate {
    std::uint64_t rank;
    std::size_t index;
  };
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < files.size(); ++i) candidates.push_back({site_of(files[i].name), i});
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.index < b.index;
  });

  std::vector<bool> held(files.size());
  std::uint64_t taken = 0;
  for (const Candidate& c : candidates)
    if (taken + files[c.index].bytes <= wanted) {
      held[c.index] = true;
      taken += files[c.index].bytes;
    }
  // Nothing small enough: one file more, the smallest that is enough.
  if (taken < least || taken == 0) {
    const std::size_t none = files.size();
    std::size_t best = none;
    for (std::size_t i = 0; i < files.size(); ++i)
      if (!held[i] && taken + files[i].bytes >= least && (best == none || files[i].bytes < files[best].bytes)) best = i;
    if (best != none) held[best] = true;
  }
  Split split;
  for (std::size_t i = 0; i < files.size(); ++i) (held[i] ? split.held_out : split.train).push_back(files[i]);
  return split;
}

TokenStream read_text(std::span<const TextFile> files) {
  // Large files are mapped, so memory need not hold them; thousands of small ones would use up the mappings a process
  // may have.
  constexpr std::uint64_t kMapped = 1 << 20;
  const auto changed = [](const TextFile& file) { refuse("cannot read {} ({} bytes)", file.path, file.bytes); };
  std::uint64_t copied = 0;
  for (const TextFile& file : files) copied += file.bytes < kMapped ? file.bytes : 0;
  if (const std::uint64_t there = usable_memory(); copied > there / 2)
    refuse(
        "{} of text lie in files below {}, which are kept in memory, and there is {}; join them into larger files, "
        "which "
        "are mapped",
        format_bytes(copied), format_bytes(kMapped), format_bytes(there));
  const auto text = std::make_shared<std::vector<std::byte>>(copied);
  TokenStream stream;
  std::size_t offset = 0;
  for (const TextFile& file : files) {
    if (file.bytes >= kMapped) {
      const auto mapped = std::make_shared<const MappedFile>(file.path);
      if (mapped->bytes().size() != file.bytes) changed(file);
      stream.append(file.path, mapped, mapped->bytes(), TokenType::u8);
      continue;
    }
    std::ifstream in(file.path, std::ios::binary);
    in.read(reinterpret_cast<char*>(text->data() + offset), static_cast<std::streamsize>(file.bytes));
    if (!in || static_cast<std::uint64_t>(in.gcount()) != file.bytes) changed(file);
    stream.append(file.path, text, std::span(*text).subspan(offset, file.bytes), TokenType::u8);
    offset += file.bytes;
  }
  return stream;
}

double unigram_cross_entropy(const TokenStream& known, const TokenStream& text, std::int64_t vocab) {
  // Of a stream too large to go through before a run, every k-th block.
  constexpr std::int64_t kMax = std::int64_t{256} << 20;
  constexpr std::int64_t kBlock = 1 << 16;
  struct Counts {
    std::vector<double> of;
    double all = 0;
  };
  const auto count = [&](const TokenStream& stream) {
    Counts counts{std::vector<double>(static_cast<std::size_t>(vocab)), 0};
    std::vector<std::int32_t> block(kBlock);
    const std::int64_t step = std::max<std::int64_t>(1, stream.size() / kMax);
    for (std::int64_t first = 0; first < stream.size(); first += step * kBlock) {
      const std::span part = std::span(block).first(static_cast<std::size_t>(std::min(kBlock, stream.size() - first)));
      stream.read(first, part);
      for (const std::int32_t token : part) counts.of[static_cast<std::size_t>(token)] += 1;
      counts.all += static_cast<double>(part.size());
    }
    return counts;
  };
  const Counts training = count(known);
  const Counts observed = count(text);
  double nats = 0;
  const double total = training.all + static_cast<double>(vocab);
  for (std::size_t token = 0; token < observed.of.size(); ++token)
    nats -= observed.of[token] * std::log((training.of[token] + 1) / total);
  return nats / observed.all;
}

}  // namespace trireme::data
