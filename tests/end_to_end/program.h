#pragma once
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace trireme::testing {

// Where the program is that these tests run.
std::string program_path();

// What the program left behind.
struct Finished {
  int code = -1;  // exit code; 128 + signal when a signal ended it
  std::string out;
  std::string err;
  std::int64_t peak_bytes = 0;  // of resident memory
  double cpu_seconds = 0;       // of all its threads
};

// The program, running in a folder with its output kept aside. A process that is still there when this object goes is
// killed.
class Running {
 public:
  enum class Output { kept, piped };
  // With `processes`, as many of it under mpirun. Output that is piped is not kept: it goes to a reader that reads
  // nothing and may go away.
  Running(const std::filesystem::path& folder, const std::vector<std::string>& arguments, int processes = 0,
          Output output = Output::kept);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  int pid() const { return pid_; }
  void signal(int number) const;
  // Until a signal that was sent has reached the program, whose handler runs then.
  void wait_for_delivery() const;
  // The reader of piped output goes away.
  void close_reader();
  // What it has said so far.
  std::string out() const;
  std::string err() const;
  // Until `holds` does or the program has ended; says which.
  bool wait_until(const std::function<bool()>& holds);
  bool ended();
  // A test that waits for several minutes fails.
  Finished wait();

 private:
  int pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  int reader_ = -1;
  int status_ = 0;
  std::int64_t peak_bytes_ = 0;
  double cpu_seconds_ = 0;
};

// Tests that use the program as a person does, in a folder of their own:
//
//   const Finished f = run({"train", "tiny.toml", "--output.dir=run"});
class Program : public ::testing::Test {
 protected:
  Program();
  ~Program() override;

  const std::filesystem::path& folder() const { return folder_; }
  Finished run(const std::vector<std::string>& arguments) const;
  // The same, and expects exit code 0.
  Finished done(const std::vector<std::string>& arguments) const;
  // Expects exit code 2 and one line on stderr, "error: …"; gives that line.
  std::string refused(const std::vector<std::string>& arguments) const;

  // What a text says, and what it does not.
  static void expect_part(const std::string& text, const std::string& part);
  static void expect_parts(const std::string& text, const std::vector<std::string>& parts);
  static void expect_none(const std::string& text, const std::string& part);

  void write(const std::string& file, const std::string& text) const;
  std::string read(const std::string& file) const;
  bool exists(const std::string& file) const;
  std::vector<std::string> names_in(const std::string& path) const;  // sorted
  // The lines of a metrics file, each of which must be whole.
  std::vector<nlohmann::json> metrics(const std::string& run) const;
  std::size_t lines(const std::string& file) const;
  // The bytes of every saved tensor after `step`.
  std::string state(const std::string& run, std::int64_t step) const;
  static std::string step_name(std::int64_t step);

  // tiny.toml and text.txt are there: a model that takes well under a second to train.
  static constexpr std::int64_t kSteps = 6;

 private:
  std::filesystem::path folder_;
};

}  // namespace trireme::testing
