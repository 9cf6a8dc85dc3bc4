#pragma once
#include <string>
#include <string_view>

namespace trireme::data {

// Rewrites an expression in Oniguruma's (Ruby's) syntax, which tokenizer.json files use, into one that PCRE2 reads with
// the same meaning:
//   \s \S       the property White_Space (PCRE2's own \s also has U+180E)
//   \w \W       alphabetic characters, marks, decimal digits and connectors (PCRE2's lacks marks)
//   \b \B       by that \w
//   \h \H       hexadecimal digits
//   X{1,3}+     repeats the repetition (to PCRE2 it would be possessive)
// Refuses what the two read differently and no tokenizer is known to use: nested and intersected classes, POSIX
// classes, options other than i and x, conditions, recursion, callouts. `where` names the expression in errors.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace trireme::data
