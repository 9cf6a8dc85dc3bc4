#pragma once
#include <trireme/log.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// Types of the fields that options.def declares. What a configuration writes as text ("25MiB", "10min") is text here.
namespace option_types {
using Integer = std::int64_t;
using Number = double;
using Flag = bool;
using AutoFlag = std::optional<bool>;  // absent: "auto"
using Text = std::string;
using Texts = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;
using Pair = std::array<double, 2>;
using Size = std::string;
using AutoSize = std::string;
using Duration = std::string;
using Interval = std::string;
using Offload = std::string;
using Table = std::map<std::string, std::string>;
}  // namespace option_types

// Stands for the C++ standard library's headers, wherever this machine's compiler keeps them: real text that needs no
// download.
inline constexpr const char* kCxxHeaders = "/usr/include/c++";

// The fields below are the options of options.def, section by section and in its order: names, defaults, values and
// refusals are those of a configuration (docs/options.md).
#define TRI_OPTION(section, name, Type, initial, rule, meaning) option_types::Type name = initial;
#define TRI_CHOICE(section, name, Type, initial, values, meaning) std::string name = initial;

// What is learned from: section [data]. The structs of data.h have those of its fields that each kind of data needs.
struct DataOptions {
#define TRI_SECTION_DATA
#include <trireme/options.def>
};

// What is pruned while a model trains: section [prune]. And whom it learns from: section [distil].
struct PruneOptions {
#define TRI_SECTION_PRUNE
#include <trireme/options.def>
};
struct DistilOptions {
#define TRI_SECTION_DISTIL
#include <trireme/options.def>
};

// How to train: sections [train] and [output], and those above.
//
//   TrainOptions{.steps = 300, .batch = 32, .lr = 3e-3, .schedule = "wsd:0.2", .dir = "runs/one"}
struct TrainOptions {
#define TRI_SECTION_TRAIN
#include <trireme/options.def>

  std::string name = "custom";  // model.family in what is saved, when the model is given as a function

  // `dir` is the run folder with metrics, log and checkpoints; "": nothing is written but by save().
#define TRI_SECTION_OUTPUT
#include <trireme/options.def>

  bool resume = false;  // continue the newest checkpoint in `dir`
  LogSink log = {};
  PruneOptions prune = {};
  DistilOptions distil = {};
};

// Where and how to compute: sections [parallel], [memory] and [runtime]. What this version cannot do is refused by
// name.
//
//   Plan{.mesh = "dp=2", .zero = 1, .remat = "sqrt", .limit = "8GiB"}
struct Plan {
#define TRI_SECTION_PARALLEL
#define TRI_SECTION_MEMORY
#define TRI_SECTION_RUNTIME
#include <trireme/options.def>

#define TRI_SECTION_SHARDING
#include <trireme/options.def>
};

#undef TRI_OPTION
#undef TRI_CHOICE

}  // namespace trireme
