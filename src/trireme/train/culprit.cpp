#include "trireme/train/culprit.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <span>

#include "trireme/core/dtype.h"
#include "trireme/core/text.h"
#include "trireme/train/input_read.h"
#include "trireme/train/same_run.h"

namespace trireme::train {
namespace {

using runtime::Executor;

// Keys of what was found, to compare over ranks: the least is the first.
constexpr std::int64_t kNothingBad = std::numeric_limits<std::int64_t>::max();
constexpr int kRankBits = 20;

std::int64_t key_of(std::int64_t what, int rank) { return (what << kRankBits) + rank; }
int rank_of_key(std::int64_t key) { return static_cast<int>(key & ((std::int64_t{1} << kRankBits) - 1)); }

// Ranks of one role count their instructions in the same way; a rank that others have made bad comes after all that
// went bad by themselves.
std::int64_t key_of(const FoundByRank& found) {
  constexpr std::int64_t kFromOthers = std::int64_t{1} << 40;
  if (!found.tensor) return kNothingBad;
  return key_of((found.tensor->from_others ? kFromOthers : 0) + static_cast<std::int64_t>(found.tensor->instruction),
                found.rank);
}

std::int64_t least_of_all(std::int64_t key, comm::Communicator& world) {
  world.all_reduce(std::span(&key, 1), comm::Reduce::min);
  return key;
}

std::optional<std::string> why_bad(float value, DType read) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+inf" : "-inf";
  const float rounded = read == DType::f16    ? static_cast<float>(Float16(value))
                        : read == DType::bf16 ? static_cast<float>(BFloat16(value))
                                              : value;
  if (std::isfinite(rounded)) return std::nullopt;
  return fmt::format("{}, which {} cannot represent", value, name_of(read));
}

}  // namespace

std::string in_words(float value) {
  return std::isnan(value) ? "not a number" : std::isinf(value) ? "infinite" : fmt::format("{}", value);
}

std::string BadInput::str(std::optional<std::int64_t> sample) const {
  const std::string where = row == kEveryRow
                                ? std::string("the same for all samples")
                                : fmt::format("sample {} of the batch{}", row,
                                              sample ? fmt::format(" (sample {} of the training data)", *sample) : "");
  return fmt::format("input '{}', {}, element {} is {}", input, where, element, what);
}

std::optional<BadInput> find_bad_input(const Compiled& compiled, std::string_view graph, const data::Batch& batch) {
  std::optional<BadInput> first;
  const auto look = [&](const std::string& input, std::span<const float> values, bool whole) {
    const std::optional<DType> read = values.empty() ? std::nullopt : input_read(compiled, graph, input);
    if (!read) return;
    const std::int64_t per_row = std::ssize(values) / (whole ? 1 : batch.rows);
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      const auto what = why_bad(values[static_cast<std::size_t>(i)], *read);
      if (!what) continue;
      const std::int64_t row = whole ? BadInput::kEveryRow : batch.global_row(i / per_row);
      if (!first || row < first->row) first = BadInput{input, row, i % per_row, *what};
      return;
    }
  };
  for (const data::NamedRows& input : batch.inputs) look(input.name, input.floats, input.whole);
  look("images", batch.images, false);
  return first;
}

std::optional<BadInput> first_of(const std::optional<BadInput>& own, comm::Communicator& world) {
  const std::int64_t key = own ? key_of(own->row + 1, world.rank()) : kNothingBad;
  const std::int64_t first = least_of_all(key, world);
  if (first == kNothingBad) return std::nullopt;
  const std::string text = key == first ? fmt::format("{}\n{}\n{}", own->input, own->element, own->what) : "";
  const std::vector<std::string> lines = split(broadcast_from(rank_of_key(first), text, world), '\n');
  return BadInput{lines[0], (first >> kRankBits) - 1, std::stoll(lines[1]), lines[2]};
}

Error& within_rank(Error& e, int rank) {
  const std::string name = fmt::format("rank {}", rank);
  return e.message().starts_with(name + " ") ? e : e.within(name);
}

std::optional<Culprit> first_of(const std::vector<FoundByRank>& found) {
  const FoundByRank* first = &found.front();
  for (const FoundByRank& other : found)
    if (key_of(other) < key_of(*first)) first = &other;
  if (!first->tensor) return std::nullopt;
  return Culprit{.tensor = *first->tensor, .rank = first->rank};
}

std::optional<Culprit> first_of(const FoundByRank& own, comm::Communicator& world) {
  const std::int64_t key = key_of(own);
  const std::int64_t first = least_of_all(key, world);
  if (first == kNothingBad) return std::nullopt;
  std::string text;
  if (key == first) {
    const Executor::BadTensor& bad = *own.tensor;
    text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", bad.instruction, bad.op, bad.tensor, bad.micro, bad.what,
                       static_cast<int>(bad.from_others));
  }
  const int rank = rank_of_key(first);
  const std::vector<std::string> lines = split(broadcast_from(rank, text, world), '\n');
  return Culprit{.tensor = {std::stoull(lines[0]), lines[1], lines[2], std::stoi(lines[3]), lines[4], lines[5] != "0"},
                 .rank = rank};
}

}  // namespace trireme::train
