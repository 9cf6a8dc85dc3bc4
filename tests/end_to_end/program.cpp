#include "end_to_end/program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "support/source_dir.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::minutes(5);

int memory_file() {
  const int fd = memfd_create("output", MFD_CLOEXEC);
  if (fd < 0) fail("no memory file");
  return fd;
}

std::string contents(int fd) {
  std::string text(static_cast<std::size_t>(lseek(fd, 0, SEEK_END)), '\0');
  if (pread(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) fail("cannot read the output");
  return text;
}

// Words in an order that a model can learn something about, the same on every machine.
std::string sample_text() {
  constexpr std::array<const char*, 8> words = {"oar", "bank", "trireme", "bronze", "ram", "keel", "wind", "stroke"};
  std::string text;
  for (std::size_t i = 0; text.size() < 12'000; ++i)
    text += std::string(words[i * i % 7 + i % 2]) + (i % 9 == 8 ? ".\n" : " ");
  return text;
}

constexpr const char* kTiny = R"([model]
family  = "gpt2"
layers  = 1
width   = 16
heads   = 2
context = 16

[data]
text = "text.txt"

[train]
steps  = 6
batch  = 4
lr     = 1e-2
warmup = 2

[runtime]
threads = 1
)";

}  // namespace

std::string program_path() { return TRIREME_PROGRAM; }

Running::Running(const fs::path& folder, const std::vector<std::string>& arguments, int processes, Output output)
    : out_(memory_file()), err_(memory_file()) {
  std::array<int, 2> pipe = {-1, -1};
  if (output == Output::piped && ::pipe2(pipe.data(), O_CLOEXEC) != 0) fail("no pipe");
  reader_ = pipe[0];
  // Everything is prepared before the fork: between it and exec only system calls are safe.
  std::vector<std::string> words = {program_path()};
  if (processes > 0) words = {source_dir() + "/tests/mpi/launch", std::to_string(processes), program_path()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string cwd = folder.string();
  pid_ = fork();
  if (pid_ < 0) fail("cannot fork");
  if (pid_ == 0) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    std::signal(SIGPIPE, SIG_DFL);
    if (dup2(nothing, 0) < 0 || dup2(pipe[1] >= 0 ? pipe[1] : out_, 1) < 0 ||
        dup2(pipe[1] >= 0 ? pipe[1] : err_, 2) < 0 || chdir(cwd.c_str()) != 0)
      _exit(99);
    execv(argv[0], argv.data());
    _exit(99);
  }
  if (pipe[1] >= 0) close(pipe[1]);
}

Running::~Running() {
  if (pid_ >= 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  close_reader();
  close(out_);
  close(err_);
}

void Running::close_reader() {
  if (reader_ >= 0) close(reader_);
  reader_ = -1;
}

void Running::signal(int number) const {
  if (pid_ >= 0) kill(pid_, number);
}

void Running::wait_for_delivery() const {
  const auto pending = [&] {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);)
      if ((line.starts_with("SigPnd:") || line.starts_with("ShdPnd:")) &&
          line.find_first_of("123456789abcdef", 7) != std::string::npos)
        return true;
    return false;
  };
  while (pending()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::string Running::out() const { return contents(out_); }
std::string Running::err() const { return contents(err_); }

bool Running::ended() {
  struct rusage usage {};
  if (pid_ >= 0 && wait4(pid_, &status_, WNOHANG, &usage) == pid_) {
    pid_ = -1;
    peak_bytes_ = std::int64_t{usage.ru_maxrss} * 1024;
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      cpu_seconds_ += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return pid_ < 0;
}

bool Running::wait_until(const std::function<bool()>& holds) {
  const auto deadline = Clock::now() + kPatience;
  while (!holds()) {
    if (ended()) return holds();
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

Finished Running::wait() {
  if (!wait_until([&] { return ended(); })) {
    ADD_FAILURE() << "still running after minutes; stderr so far:\n" << contents(err_);
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
    pid_ = -1;
  }
  const int code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  return {code, contents(out_), contents(err_), peak_bytes_, cpu_seconds_};
}

Program::Program() {
  std::string pattern = (fs::temp_directory_path() / "trireme-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) fail("no temporary folder");
  folder_ = pattern;
  write("text.txt", sample_text());
  write("tiny.toml", kTiny);
}

Program::~Program() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Finished Program::run(const std::vector<std::string>& arguments) const { return Running(folder_, arguments).wait(); }

Finished Program::done(const std::vector<std::string>& arguments) const {
  Finished f = run(arguments);
  EXPECT_EQ(f.code, 0) << fmt::format("trireme {}", fmt::join(arguments, " ")) << "\n" << f.out << f.err;
  return f;
}

std::string Program::refused(const std::vector<std::string>& arguments) const {
  const Finished f = run(arguments);
  const std::string command = fmt::format("trireme {}", fmt::join(arguments, " "));
  EXPECT_EQ(f.code, 2) << command << "\n" << f.out << f.err;
  EXPECT_TRUE(f.err.starts_with("error: ")) << command << "\n" << f.err;
  EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1) << command << "\n" << f.err;
  return f.err.substr(0, f.err.find('\n'));
}

void Program::expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in:\n" << text;
}

void Program::expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) expect_part(text, part);
}

void Program::expect_none(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << "'" << part << "' in:\n" << text;
}

void Program::write(const std::string& file, const std::string& text) const {
  fs::create_directories((folder_ / file).parent_path());
  std::ofstream(folder_ / file, std::ios::binary) << text;
}

std::string Program::read(const std::string& file) const {
  std::ifstream in(folder_ / file, std::ios::binary);
  EXPECT_TRUE(in) << "no " << file;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool Program::exists(const std::string& file) const { return fs::exists(folder_ / file); }

std::vector<std::string> Program::names_in(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / path, missing))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<nlohmann::json> Program::metrics(const std::string& run) const {
  const std::string text = read(run + "/metrics.jsonl");
  EXPECT_TRUE(text.empty() || text.ends_with('\n')) << "the last line is not whole: " << text;
  std::vector<nlohmann::json> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    all.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(all.back().is_object()) << line;
  }
  return all;
}

std::size_t Program::lines(const std::string& file) const {
  std::ifstream in(folder_ / file);
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n'));
}

std::string Program::step_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::string Program::state(const std::string& run, std::int64_t step) const {
  return read(run + "/checkpoints/" + step_name(step) + "/state.safetensors");
}

}  // namespace trireme::testing
