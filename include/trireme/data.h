#pragma once
#include <trireme/export.h>
#include <trireme/inputs.h>
#include <trireme/model_config.h>
#include <trireme/options.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// A field that is an option of options.def: its type and default are those of the table, and docs/options.md says what
// it means. A comment here says what is particular to one kind of data.
#define TRI_FIELD(Options, name) decltype(Options::name) name = Options{}.name  // NOLINT(bugprone-macro-parentheses)

// Where samples come from, and their shape. Made by one of the functions below; opened, and refused if missing or too
// short, when a Trainer is made.
struct OwnSamples;
struct Data {
  enum class Kind { text, tokens, images, inputs };
  Kind kind = Kind::text;
  std::vector<std::string> files = DataOptions{}.text;
  TRI_FIELD(ModelConfig, context);
  TRI_FIELD(ModelConfig, vocab);
  TRI_FIELD(DataOptions, token_type);
  TRI_FIELD(ModelConfig, image);
  TRI_FIELD(ModelConfig, channels);
  TRI_FIELD(ModelConfig, classes);
  TRI_FIELD(DataOptions, order);
  TRI_FIELD(DataOptions, eval);
  TRI_FIELD(DataOptions, holdout);
  std::string tokenizer = "";  // of text: a tokenizer.json or its folder; "": bytes, or those of a Pretrained
  TRI_FIELD(DataOptions, augment);
  std::shared_ptr<const OwnSamples> own = {};  // samples that the program makes itself
};

struct TextOptions {
  TRI_FIELD(ModelConfig, context);
  TRI_FIELD(DataOptions, order);
  TRI_FIELD(DataOptions, eval);     // held-out files; else
  TRI_FIELD(DataOptions, holdout);  // this share is held out: whole files, or the end of a single one
  std::string tokenizer = "";       // a tokenizer.json; "": one token per byte, or as a Pretrained has it
};
// Text files, folders of them, or globs; "path@0.7" gives a mixing weight. The vocabulary is the tokenizer's, 256 for
// bytes.
TRIREME_API Data text_files(std::vector<std::string> files, TextOptions options = {});

struct TokenOptions {
  TRI_FIELD(ModelConfig, vocab);  // must be given, unless there is a tokenizer
  TRI_FIELD(ModelConfig, context);
  TRI_FIELD(DataOptions, token_type);
  TRI_FIELD(DataOptions, order);
  TRI_FIELD(DataOptions, eval);
  TRI_FIELD(DataOptions, holdout);  // the end of the tokens
  std::string tokenizer = "";       // that they were made with: gives the vocabulary
};
// Token files or globs: raw little-endian integers, llm.c's or Megatron's.
TRIREME_API Data token_files(std::vector<std::string> files, TokenOptions options);

struct ImageOptions {
  decltype(ModelConfig::image) size = ModelConfig{}.image;
  TRI_FIELD(ModelConfig, channels);
  TRI_FIELD(ModelConfig, classes);
  TRI_FIELD(DataOptions, order);
  TRI_FIELD(DataOptions, holdout);
};
// Images that need no files and can be learned: a pattern for each class, moved, scaled and under noise.
TRIREME_API Data synthetic_images(ImageOptions options = {});

struct ImageFileOptions {
  TRI_FIELD(DataOptions, augment);
  TRI_FIELD(DataOptions, order);
  TRI_FIELD(DataOptions, eval);
  TRI_FIELD(DataOptions, holdout);  // where the files have no test part
};
// A folder, file or glob of IDX (MNIST), CIFAR-10 or CIFAR-100 files, which say their size and classes themselves.
TRIREME_API Data image_files(const std::string& path, ImageFileOptions options = {});

// Samples of your own, from wherever they come. `read` writes sample i, from 0 to samples - 1: tokens and for each the
// one to predict (-1: none), or pixels [size, size, channels] and gives the label. It is called by several threads,
// each time with the same result. The last `holdout` of the samples is held out. What such a run saves can be generated
// from; to go on with it, the same program does.
struct OwnTokenOptions {
  TRI_FIELD(ModelConfig, vocab);  // must be given
  TRI_FIELD(ModelConfig, context);
  TRI_FIELD(DataOptions, order);
  TRI_FIELD(DataOptions, holdout);
};
using ReadTokens =
    std::function<void(std::int64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)>;
TRIREME_API Data own_tokens(std::int64_t samples, ReadTokens read, OwnTokenOptions options);
using ReadImage = std::function<std::int32_t(std::int64_t sample, std::span<float> pixels)>;
TRIREME_API Data own_images(std::int64_t samples, ReadImage read, ImageOptions options = {});
// Tokens that are in memory: sample i reads context + 1 of them from i * context.
TRIREME_API Data tokens_in_memory(std::vector<std::int32_t> tokens, OwnTokenOptions options);

// Inputs by names of your own, for models that read them by these names.
//
//   own_inputs(1000, {{.name = "pixels", .shape = {28, 28}}, {.name = "price", .target = true}},
//              [&](std::int64_t i, Sample& to) {
//                std::copy_n(image(i), 28 * 28, to.floats("pixels").begin());
//                to.floats("price")[0] = price(i);
//              });
struct OwnInputOptions {
  TRI_FIELD(DataOptions, order);
  TRI_FIELD(DataOptions, holdout);
  WriteInputs whole = {};  // writes the inputs that are the same for all rows of an update
};
TRIREME_API Data own_inputs(std::int64_t samples, std::vector<Input> inputs, WriteInputs write,
                            OwnInputOptions options = {});

// The same from memory: those of all samples, one after another. Their number follows from it.
struct InputInMemory {
  std::string name;
  InputValues values;
  Extents shape = {};  // as Input's
  bool whole = false;
  bool target = false;
};
TRIREME_API Data inputs_in_memory(std::vector<InputInMemory> inputs, OwnInputOptions options = {});

#undef TRI_FIELD

}  // namespace trireme
