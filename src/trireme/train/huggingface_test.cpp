// The folders of tests/huggingface, against what transformers computes from them.
#include "trireme/train/huggingface.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/train/compile.h"
#include "trireme/train/registry.h"
#include "trireme/train/sample_text.h"
#include "trireme/train/trained_model.h"
#include "trireme/train/trainer.h"

namespace trireme::train {
namespace {

const std::string kFolders = source_dir() + "/tests/huggingface/";

template <class T>
std::vector<T> values(const io::SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(file.at(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

double relative_distance(std::span<const float> mine, std::span<const float> theirs) {
  EXPECT_EQ(mine.size(), theirs.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const double a = static_cast<double>(mine[i]);
    const double b = static_cast<double>(theirs[i]);
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  return std::sqrt(difference / norm);
}

class Folder : public testing::TestWithParam<const char*> {
 protected:
  // Ranks that the folder's heads divide by.
  std::string mesh() const { return load_config(path()).model.heads % 2 == 0 ? "tp=2" : "tp=3"; }
  std::string path() const { return kFolders + GetParam(); }
  io::SafetensorsFile expected() const { return io::SafetensorsFile(path() + "/expected.safetensors"); }

  Registry registry;
};

class Loaded {
 public:
  Loaded(const std::string& folder, const Registry& registry)
      : compiled_(compile(resolved(folder, registry), registry, {})), session(compiled_, 1) {
    load_huggingface(folder, session);
  }

 private:
  static Config resolved(const std::string& folder, const Registry& registry) {
    Config config = load_config(folder);
    config.train.batch = 1;
    resolve_model(config, config.model.vocab, registry.models);
    return config;
  }
  Compiled compiled_;

 public:
  Session session;
};

TEST_P(Folder, LogitsAreTheirs) {
  Loaded model(path(), registry);
  const auto logits = values<float>(expected(), "logits");
  EXPECT_LE(relative_distance(model.session.predict(values<std::int32_t>(expected(), "tokens")), logits), 1e-5);
}

TEST_P(Folder, GreedyContinuationsAreTheirs) {
  const auto theirs = values<std::int32_t>(expected(), "greedy");
  const auto prompt = values<std::int32_t>(expected(), "prompt");
  const SampleOptions greedy{.tokens = std::ssize(theirs), .sampling = {.temperature = 0}};
  Loaded model(path(), registry);
  EXPECT_EQ(sample_tokens(model.session, prompt, greedy), theirs);
  TrainedModel cached(load_config(path()), registry, {.purpose = Purpose::generate}, path(), std::nullopt, {});
  EXPECT_EQ(sample_tokens(cached.session(), prompt, greedy), theirs);
}

// Each rank reads its slices of the folder alone, and has its heads of the cache.
TEST_P(Folder, RanksThatShareTheModelContinueAsTheyDo) {
  const auto theirs = values<std::int32_t>(expected(), "greedy");
  const auto prompt = values<std::int32_t>(expected(), "prompt");
  const SampleOptions greedy{.tokens = std::ssize(theirs), .sampling = {.temperature = 0}};
  const std::vector<std::string> settings = {"parallel.mesh=" + mesh()};
  TrainedModel model(load_config(path(), settings), registry, {.purpose = Purpose::generate}, path(), std::nullopt, {});
  EXPECT_EQ(model.compiled().ranks(), mesh().back() - '0');
  EXPECT_EQ(sample_tokens(model.session(), prompt, greedy), theirs);
  bool sharded = false;
  for (const ir::State& state : model.compiled().roles.front().module.states)
    if (state.category == ir::Category::cache) sharded = sharded || !state.sharding.replicated();
  EXPECT_TRUE(sharded);
}

// With fewer positions than the folder has.
TEST_P(Folder, TrainingFollowsTheirs) {
  const std::vector<std::string> settings = {
      "data.tokens=" + kFolders + "tokens.bin",
      "data.order=sequential",
      "data.holdout=0",
      "model.context=16",
      "train.steps=20",
      "train.batch=4",
      "train.warmup=0",
      "train.lr=1e-3",
      "train.schedule=constant",
      "runtime.threads=1",
      "train.micro_batch=2",
  };
  for (const std::string& ranks : {std::string("auto"), mesh()}) {
    SCOPED_TRACE(ranks);
    std::vector<std::string> all = settings;
    all.push_back("parallel.mesh=" + ranks);
    Trainer trainer(load_config(path(), all), registry, {.write = false});
    trainer.start();
    const Outcome outcome = trainer.run();
    const auto losses = values<float>(expected(), "losses");
    ASSERT_EQ(outcome.losses.size(), losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(outcome.losses[i], static_cast<double>(losses[i]), 1e-4) << "step " << i;
  }
}

// The table of names is the model's own list of parameters, shape by shape.
TEST_P(Folder, EveryParameterHasItsCounterpart) {
  const Loaded model(path(), registry);
  std::map<std::string, Shape> mine;
  for (const ir::State& state : model.session.compiled().roles.front().module.states)
    if (state.trained) mine.emplace(state.name, state.type.shape);
  std::map<std::string, Shape> table;
  for (const io::HfTensor& tensor : io::hf_tensors(io::read_hf_config(path()).model))
    table.emplace(tensor.ours, tensor.shape);
  EXPECT_TRUE(mine == table);
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, Folder,
                         testing::Values("gpt2-tied", "gpt2-older", "gpt2-untied-f16", "llama-grouped", "llama3-tied",
                                         "llama-bf16-sharded"),
                         [](const auto& folder) {
                           std::string name = folder.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

std::string refusal(const std::string& folder, const std::vector<std::string>& settings) {
  try {
    load_config(folder, settings);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request);
    return e.message();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(InitFrom, KeysThatDisagreeAreRefusedWithBothValues) {
  const std::string folder = kFolders + "llama3-tied";
  const auto expected = [&](const std::string& mine, const std::string& theirs) {
    return mine + ", but init.from has " + theirs + " (" + folder +
           "/config.json); leave the key out or name another folder";
  };
  EXPECT_EQ(refusal(folder, {"model.width=32"}), expected("model.width = 32", "24"));
  EXPECT_EQ(refusal(folder, {"model.family=gpt2"}), expected("model.family = \"gpt2\"", "\"llama\""));
  EXPECT_EQ(refusal(folder, {"model.tie_embeddings=false"}), expected("model.tie_embeddings = false", "true"));
  EXPECT_EQ(refusal(folder, {"model.rope_theta=10000"}), expected("model.rope_theta = 10000.0", "500000.0"));
  EXPECT_EQ(refusal(folder, {"model.context=49"}),
            "model.context = 49, but " + folder + "/config.json has 48 positions; give at most that");
}

TEST(InitFrom, KeysThatAgreeOrAreOpenAreFine) {
  const Config config = load_config(
      kFolders + "llama3-tied", std::vector<std::string>{"model.width=24", "model.ffn=0", "model.tie_embeddings=auto",
                                                         "model.dropout=0.5", "model.context=7"});
  EXPECT_EQ(config.model.ffn, 40);
  EXPECT_EQ(config.model.head_dim, 8);
  EXPECT_EQ(config.model.context, 7);
  EXPECT_EQ(config.model.dropout, 0.5);
  EXPECT_EQ(config.model.tie_embeddings, true);
}

TEST(InitFrom, FoldersThatAreNone) {
  EXPECT_EQ(refusal("quickstart", {"init.from=nowhere"}), "init.from = \"nowhere\": there is no such folder");
  EXPECT_EQ(refusal("quickstart", {"init.from=" + source_dir()}),
            "init.from = \"" + source_dir() + "\": not a Hugging Face folder (no config.json)");
}

}  // namespace
}  // namespace trireme::train
