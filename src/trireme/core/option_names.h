#pragma once
#include <string_view>

namespace trireme {

// What messages call the options that a room was given. A room that knows nothing of a run calls them as their fields
// are called ("context"), which are the names below; train/ gives it a configuration's keys, with their sections, and
// the library gives it what programs write. The texts are literals: they outlive every reader.
struct OptionNames {
#define TRI_OPTION(section, name, Type, initial, rule, meaning) std::string_view name = #name;
#define TRI_CHOICE(section, name, Type, initial, values, meaning) std::string_view name = #name;
#define TRI_SECTION_MODEL
#define TRI_SECTION_DATA
#define TRI_SECTION_MEMORY
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE
};

}  // namespace trireme
