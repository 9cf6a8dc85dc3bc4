#include "trireme/comm/tuning.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trireme/core/atomic_file.h"
#include "trireme/core/text.h"

namespace trireme::comm {
namespace {

constexpr std::size_t kFewStepsBelow = 32 << 10;

Algorithm by_rule(TransportKind transport, std::size_t bytes) {
  if (transport != TransportKind::emulated) return Algorithm::native;
  return bytes <= kFewStepsBelow ? Algorithm::recursive : Algorithm::ring;
}

template <class T>
T number(std::string_view text, const std::string& source, int line) {
  T value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size())
    refuse("{}:{}: \"{}\" is not a number", source, line, text);
  return value;
}

TransportKind parse_kind(std::string_view text, const std::string& source, int line) {
  for (const TransportKind kind : {TransportKind::threads, TransportKind::emulated, TransportKind::mpi})
    if (text == name_of(kind)) return kind;
  refuse("{}:{}: unknown transport \"{}\": one of threads, emulated, mpi", source, line, text);
}

}  // namespace

Algorithm choose(const Tuning& tuning, TransportKind transport, Collective collective, std::size_t bytes, int ranks) {
  if (collective == Collective::all_reduce)
    for (const Tuning::Entry& e : tuning.entries)
      if (e.transport == transport && e.ranks == ranks && bytes <= e.bytes) return e.algorithm;
  return by_rule(transport, bytes);
}

std::string to_text(const Tuning& tuning) {
  std::string text = "# transport ranks up_to_bytes algorithm; made by: trireme bench comm --tune\n";
  for (const Tuning::Entry& e : tuning.entries)
    text += fmt::format("{} {} {} {}\n", name_of(e.transport), e.ranks, e.bytes, name_of(e.algorithm));
  return text;
}

Tuning parse_tuning(std::string_view text, const std::string& source) {
  Tuning tuning;
  int number_of_line = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number_of_line;
    const std::string_view content = trim(line);
    if (content.empty() || content.front() == '#') continue;
    std::vector<std::string> words;
    for (const std::string& word : split(content, ' '))
      if (!word.empty()) words.push_back(word);
    if (words.size() != 4) refuse("{}:{}: expected \"transport ranks bytes algorithm\"", source, number_of_line);
    try {
      tuning.entries.push_back({parse_kind(words[0], source, number_of_line),
                                number<int>(words[1], source, number_of_line),
                                number<std::size_t>(words[2], source, number_of_line), parse_algorithm(words[3])});
    } catch (Error& e) {
      if (e.message().starts_with(source)) throw;
      throw e.within(fmt::format("{}:{}", source, number_of_line));
    }
    if (tuning.entries.back().algorithm == Algorithm::automatic)
      refuse("{}:{}: \"auto\" is what this file decides", source, number_of_line);
  }
  return tuning;
}

std::string tuning_file() {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "trireme" / "all_reduce.txt";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == 0) refuse("neither XDG_CACHE_HOME nor HOME is set: no place for measurements");
  return fs::path(home) / ".cache" / "trireme" / "all_reduce.txt";
}

Tuning load_tuning(const std::string& file) {
  std::ifstream in(file);
  if (!in) return {};
  std::ostringstream text;
  text << in.rdbuf();
  return parse_tuning(text.str(), file);
}

void save_tuning(const Tuning& tuning, const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  write_file_atomically(file, to_text(tuning));
}

}  // namespace trireme::comm
