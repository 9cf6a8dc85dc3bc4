#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/comm/communicator.h"
#include "trireme/core/error.h"
#include "trireme/data/dataset.h"
#include "trireme/runtime/executor.h"
#include "trireme/train/compile.h"

// Why a step was not finite.
namespace trireme::train {

// A loss or a norm for an error: "not a number", "infinite" or its digits.
std::string in_words(float value);

// A value of a batch that no step can train with.
struct BadInput {
  static constexpr std::int64_t kEveryRow = -1;
  std::string input;
  std::int64_t row = 0;      // of the global batch; kEveryRow: of an input that is the same for all of them
  std::int64_t element = 0;  // of the row
  std::string what;          // "NaN", or "1e+06, which f16 cannot represent"

  // "input 'prices', sample 3 of the batch (sample 812 of the training data), element 17 is NaN"; `sample` is the
  // number in the data, where it is known.
  std::string str(std::optional<std::int64_t> sample = {}) const;
};

// Looks at what a graph ("micro" in steps) reads of `batch` in a floating type, at inputs that nothing reads not at
// all. Of several the one of the first row, whatever ranks there are.
std::optional<BadInput> find_bad_input(const Compiled& compiled, std::string_view graph, const data::Batch& batch);
// Of what the processes have found in their own rows, the one of the first row. Collective.
std::optional<BadInput> first_of(const std::optional<BadInput>& own, comm::Communicator& world);

// What a bad step began with: a value of its batch or, where all of these are finite, a tensor that one of its ranks
// has made of them.
struct Culprit {
  std::optional<BadInput> input = {};
  runtime::Executor::BadTensor tensor = {};
  int rank = 0;  // whose tensor it is
};

// Of what several ranks have found, the one that nothing bad had reached from another rank; `rank` is that of the run.
struct FoundByRank {
  int rank = 0;
  std::optional<runtime::Executor::BadTensor> tensor = {};
};
std::optional<Culprit> first_of(const std::vector<FoundByRank>& found);
// The same where every rank is a process and knows its own. Collective.
std::optional<Culprit> first_of(const FoundByRank& own, comm::Communicator& world);

// Says whose error it is, unless it begins with that: "rank 1: …", but "rank 1 waited for …".
Error& within_rank(Error& e, int rank);

// A failure that all ranks meet together: where it is reported it names the rank that it began on, if one is to blame,
// and not the one that reports it.
class SharedFailure : public Error {
 public:
  explicit SharedFailure(std::string message) : Error(Kind::failure, std::move(message)) {}
};

// A step that is not finite ends the run on all ranks.
class BadStep : public SharedFailure {
 public:
  using SharedFailure::SharedFailure;
};

}  // namespace trireme::train
