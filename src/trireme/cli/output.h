#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::cli {

// Writes text, and goes on where nobody reads it any more: a closed terminal or pipe is no reason to lose a run.
void say(std::FILE* to, const std::string& text);

template <class... Args>
void say(std::FILE* to, fmt::format_string<Args...> format, Args&&... args) {
  say(to, fmt::format(format, std::forward<Args>(args)...));
}

// Writes the line "error: …" and gives the code to exit with.
int report(const Error& e);

// The line "warning: …": for work that is done for the command and tells what it noticed.
void warn(LogLevel level, const std::string& text);
// Sends what was printed to standard output on its way. False: it does not take it.
bool flush_output();

// The code to exit with after a command that gave `code`: where standard output did not take all that was printed (a
// full disk), a command that is done has failed all the same, and says so.
int settle_output(int code);

// The perplexity of a loss: "4.470" with three decimals, "over 10^37" where digits say nothing. Nobody compares such.
bool is_telling(double perplexity);
std::string perplexity_text(double loss, int decimals);

// Columns of the terminal that `to` is; 0: it is none.
int terminal_width(std::FILE* to);

// Columns that a text takes there.
int columns_of(std::string_view text);

// `line` cut to so many columns of a terminal; a cut one ends in "…". 0: as it is.
std::string fitted(const std::string& line, int columns);

}  // namespace trireme::cli
