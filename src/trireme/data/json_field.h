#pragma once
#include <string>
#include <string_view>

#include "trireme/core/mapped_file.h"

namespace trireme::data {

// One line of JSON lines. Both functions refuse, naming `where` ("t.jsonl:3"), what is no JSON object or has no string
// `field`. Bytes that are not UTF-8 count as U+FFFD.

// The string's text.
void read_field(std::string_view line, const std::string& field, const std::string& where, std::string& text);

// For a line of any length, in a few kilobytes of memory: the string as it is written between its quotes, a part of
// `line`. `file` is where the line lies; its memory is given back as it is gone through.
std::string_view find_field(std::string_view line, const std::string& field, const std::string& where,
                            const MappedFile& file);

// The text of a part of such a string.
void unescape(std::string_view written, std::string& text);

}  // namespace trireme::data
