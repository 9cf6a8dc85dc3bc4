#pragma once
#include <fmt/format.h>
#include <trireme/error.h>

#include <string>
#include <utility>

namespace trireme {

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
#define TRI_CHECK(condition, ...)                                                             \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::trireme::check_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
