#pragma once
#include <functional>
#include <string>

namespace trireme {

enum class LogLevel { debug, info, warning };

// Where the library's messages go. The library itself prints nothing: its user passes a sink in, and an empty sink
// drops the message.
using LogSink = std::function<void(LogLevel, const std::string&)>;

}  // namespace trireme
