#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

namespace trireme {

// The one exception type. It gathers context on its way up:
//
//   try { prepare(instruction); }
//   catch (Error& e) { throw e.within("instruction 12 (matmul blocks.0.up)"); }
//
// `request` means the user asked for something impossible and nothing was started (exit 2);
// `failure` means the run failed (exit 1).
class Error : public std::exception {
 public:
  enum class Kind { request, failure };

  Error(Kind kind, std::string message) : kind_(kind), message_(std::move(message)) {}

  // Prepends where it happened: "context: message".
  Error& within(const std::string& context) {
    message_ = context + ": " + message_;
    return *this;
  }

  Kind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Kind kind_;
  std::string message_;
};

// The run cannot go on.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Error::Kind::failure, fmt::format(format, std::forward<Args>(args)...));
}

// The request was wrong; said before anything starts.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Error::Kind::request, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace trireme

// A programmer's error, checked in every build: TRI_CHECK(i < n, "index {} of {}", i, n).
#define TRI_CHECK(condition, ...)                                                                          \
  do {                                                                                                     \
    if (!(condition)) [[unlikely]]                                                                         \
      ::trireme::check_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
