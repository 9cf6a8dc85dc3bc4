#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>

namespace trireme {

enum class LogLevel { debug, info, warning };

// Where the library's messages go. The library itself prints nothing: whoever uses it passes a sink in, and an empty
// sink drops the message.
using LogSink = std::function<void(LogLevel, const std::string&)>;

template <class... Args>
void log(const LogSink& sink, LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (sink) sink(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trireme
