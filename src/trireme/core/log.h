#pragma once
#include <fmt/format.h>
#include <trireme/log.h>

#include <utility>

namespace trireme {

template <class... Args>
void log(const LogSink& sink, LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (sink) sink(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trireme
