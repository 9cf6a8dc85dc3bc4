#pragma once
#include <trireme/log.h>

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "trireme/core/dtype.h"
#include "trireme/core/option_names.h"
#include "trireme/data/data_config.h"

namespace trireme::data {

class Tokenizer;

// Rows [first, first + count) of one update's global batch.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// Rows of an input that the model names itself, f32 or i32: one of the two vectors is filled.
struct NamedRows {
  std::string name;
  bool whole = false;  // not by rows but the same for all of them
  std::vector<float> floats;
  std::vector<std::int32_t> integers;
};

// Rows of one update's global batch, row-major: those that one process needs. Text fills `tokens` and `targets`; images
// fill `images` and `labels`; what models name themselves fills `inputs`.
struct Batch {
  Batch() = default;
  // Images lie where `memory` puts them.
  explicit Batch(std::pmr::memory_resource* memory) : images(memory), narrow_images(memory) {}

  // Of the run. With the step and a row's place in the global batch it names every random choice about that row.
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  // Which rows of the global batch they are, in ascending order; empty: rows 0 … rows - 1.
  std::vector<RowRange> ranges;
  std::int64_t rows = 0;
  std::vector<std::int32_t> tokens;   // rows × context
  std::vector<std::int32_t> targets;  // rows × context: the token after each
  std::pmr::vector<float> images;     // rows × height × width × channels
  // The same images in 16 bits, where a loader was asked for them; f32: they are not there.
  DType narrow_type = DType::f32;
  std::pmr::vector<std::uint16_t> narrow_images;
  std::vector<std::int32_t> labels;  // rows
  std::vector<NamedRows> inputs;

  // Row `row` of these, as a row of the global batch.
  std::int64_t global_row(std::int64_t row) const;
  // Where the rows of a range are among these. Fails when some are not.
  std::int64_t position(const RowRange& wanted) const;
};

// Calls f(values, whether they are by rows) for each of the vectors that a dataset fills.
template <class B, class F>
void each_values(B& batch, F&& f) {
  f(batch.tokens, true);
  f(batch.targets, true);
  f(batch.images, true);
  f(batch.labels, true);
  for (auto& input : batch.inputs) {
    f(input.floats, !input.whole);
    f(input.integers, !input.whole);
  }
}

// Rows of images in 16 bits, bf16 or f16.
void narrow_images(std::span<const float> from, DType to, std::span<std::uint16_t> out);

class MixedDataset;

// What samples take of the host's memory.
struct DataMemory {
  std::uint64_t held = 0;    // bytes that are kept in memory
  std::uint64_t mapped = 0;  // bytes of files, which the system keeps there as long as it has room
  DataMemory& operator+=(const DataMemory& other);
};

// A fixed collection of samples. Reading is const and safe from any thread: every rank reads the same object.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  virtual std::int64_t samples() const = 0;
  // Tokens one sample counts for: the context, or 1 for an image.
  virtual std::int64_t tokens_per_sample() const = 0;
  // Sizes the vectors of `batch` for `rows` samples.
  virtual void resize(Batch& batch, std::int64_t rows) const = 0;
  // Writes what all rows of the batch have in common, by its step.
  virtual void read_common(Batch& /*batch*/) const {}
  // Writes sample `sample` as row `row` of a batch sized before. Fails, naming file and position, on bad data.
  virtual void read(std::int64_t sample, std::int64_t row, Batch& batch) const = 0;
  virtual DataMemory memory() const { return {}; }
  // This dataset as one of several weighted sources (mixture.h), or null.
  virtual const MixedDataset* mixed() const { return nullptr; }
};

// The training and held-out samples of a configuration.
struct Data {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;  // null: nothing is held out
  std::int64_t vocab = 0;               // text and tokens
  SampleShape shape;                    // images: as asked for, the rest as the files have it
  // Text: "783 C++ headers, 11.7 MB, 39 whole files held out"; of the same kind for the others.
  std::string summary;
  // Text: what turned it into tokens; null for token files and images.
  std::shared_ptr<const Tokenizer> tokenizer;
  // Text: what turning it into tokens took of memory, at most, the tokenizer's tables and the tokens left out.
  std::uint64_t encoding_bytes = 0;
  // Text: nats per token on the held-out tokens when only the training tokens' frequencies are known; 0: not known.
  double unigram_entropy = 0;
};

struct OpenOptions {
  LogSink log;                    // how far long work is
  int threads = 1;                // for encoding text
  std::uint64_t text_memory = 0;  // bytes that tokens of text may take; 0: half of `memory`
  std::uint64_t memory = 0;       // bytes that this process may use; 0: as this machine says
  OptionNames names = {};         // what messages call what `config` and `shape` say
};

// Opens what `config` names. Refuses, before anything starts, what is missing, empty, unreadable or too short.
Data open_data(const DataConfig& config, const SampleShape& shape, const OpenOptions& options = {});

}  // namespace trireme::data
