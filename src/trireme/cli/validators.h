#pragma once
#include <charconv>
#include <string>

#include "trireme/cli/command_line.h"
#include "trireme/core/error.h"

namespace trireme::cli {

// A number of at least 0; CLI11's own check answers with the largest number there is, digit by digit.
inline CLI::Validator not_negative() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && rest == end && value >= 0) return {};
            return fmt::format("must be a number of at least 0, got {}", text);
          },
          ""};
}

// A name that is left empty, as by a shell's variable that was never set, is not taken for one that was left out.
inline CLI::Validator not_empty() {
  return {[](std::string& text) -> std::string { return text.empty() ? "is empty; name one, or leave it out" : ""; },
          ""};
}

}  // namespace trireme::cli
