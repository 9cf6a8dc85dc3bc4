// The library as its users see it.
#include <gtest/gtest.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "support/library.h"
#include "trireme/api/settings.h"
#include "trireme/train/config/keys.h"

namespace {

namespace fs = std::filesystem;
using trireme::testing::losses;
using trireme::testing::refusal;

struct ByteLM {
  int layers = 2, width = 32, vocab = 256;
  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    auto x = embedding(b.scope("embed"), in.tokens, vocab, width);
    for (int i = 0; i < layers; ++i) {
      auto k = b.scope("blocks", i);
      x = x + attention(k.scope("attn"), rms_norm(k.scope("n1"), x), {.heads = 8});
      auto up = linear(k.scope("up"), rms_norm(k.scope("n2"), x), 4 * width);
      x = x + linear(k.scope("down"), gelu(up), width);
    }
    return linear_cross_entropy(b.scope("head"), x, in.targets, vocab);
  }
};

// Attention that stays within a line.
struct LineLM {
  bool lines = true;
  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    auto x = embedding(b.scope("embed"), in.tokens, 256, 32);
    const tri::Value starts = lines ? document_starts(in.tokens, '\n') : tri::Value();
    for (int i = 0; i < 2; ++i)
      x = x + attention(b.scope("blocks", i), rms_norm(b.scope("norm", i), x), {.heads = 4, .starts = starts});
    return linear_cross_entropy(b.scope("head"), x, in.targets, 256);
  }
};

class Library : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trireme_api_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream out(text_);
    for (int i = 0; i < 400; ++i) out << "the quick brown fox number " << i % 7 << " jumps over the lazy dog\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_ = fs::temp_directory_path() / ("trireme_api_" + std::to_string(::getpid()));
  std::string text_ = (folder_ / "book.txt").string();
  tri::Data book() const { return tri::text_files({text_}, {.context = 32}); }
  tri::TrainOptions few(std::int64_t steps) const { return {.steps = steps, .batch = 8, .lr = 3e-3, .warmup = 2}; }
};

// Each step once and in order, with its own loss, where ranks go at their own pace too.
TEST_F(Library, CallsBackOnceForEachStep) {
  for (const tri::Plan& plan :
       {tri::Plan{}, tri::Plan{.mesh = "pp=2", .pipeline = "pipedream"},
        tri::Plan{.mesh = "pp=2", .pipeline = "pipedream-2bw"}, tri::Plan{.mesh = "dp=2", .server = "async"}}) {
    tri::TrainOptions options = few(6);
    options.micro_batch = plan.pipeline.starts_with("pipedream") ? 2 : 0;
    tri::Trainer t{ByteLM{}, book(), options, plan};
    std::vector<std::int64_t> steps;
    t.on_step([&](const tri::Metrics& m) {
      steps.push_back(m.step);
      EXPECT_GT(m.loss, 1);
      return tri::Next::go;
    });
    t.run();
    EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6})) << plan.pipeline << " " << plan.server;
  }
}

// Ranks at their own pace come together before an exception leaves run(), and nothing touches their state meanwhile.
TEST_F(Library, GoesOnAfterAnExceptionWhereRanksGoAtTheirOwnPace) {
  for (const tri::Plan& plan :
       {tri::Plan{.mesh = "pp=2", .pipeline = "pipedream"}, tri::Plan{.mesh = "dp=2", .server = "async"}}) {
    tri::TrainOptions options = few(12);
    options.micro_batch = 2;
    tri::Trainer t{ByteLM{}, book(), options, plan};
    bool thrown = false;
    std::string said;
    t.on_step([&](const tri::Metrics& m) {
      if (m.step == 2) said = refusal([&] { t.save((folder_ / "within").string()); });
      if (m.step == 3 && !std::exchange(thrown, true)) throw std::runtime_error("the user's own");
      return tri::Next::go;
    });
    EXPECT_THROW(t.run(), std::runtime_error);
    EXPECT_NE(said.find("return Next::stop"), std::string::npos) << said;
    EXPECT_EQ(t.run().step, 12);
    t.save((folder_ / ("after" + plan.server)).string());
    EXPECT_TRUE(fs::exists(folder_ / ("after" + plan.server) / "checkpoints/step-00000012"));
  }
}

TEST_F(Library, KeepsAttentionWithinDocuments) {
  const tri::Data data = tri::text_files({text_}, {.context = 128});
  tri::Trainer plain{LineLM{}, data, few(4)};
  const std::vector<double> expected = losses(plain);
  tri::Trainer staged{LineLM{}, data, few(4), tri::Plan{.mesh = "pp=2,dp=2"}};
  const std::vector<double> found = losses(staged);
  tri::Trainer across{LineLM{false}, data, few(4)};
  const std::vector<double> other = losses(across);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5);
    EXPECT_GT(std::abs(other[i] - expected[i]), 1e-5);
  }
  const auto any_numbers = [](tri::Builder& b, const tri::Batch& in) {
    const tri::Value x = embedding(b.scope("embed"), in.tokens, 256, 32);
    const tri::Value y = attention(b.scope("attn"), x, {.heads = 4, .starts = in.tokens});
    return linear_cross_entropy(b.scope("head"), y, in.targets, 256);
  };
  EXPECT_NE(refusal([&] { tri::Trainer(any_numbers, data, few(1)); }).find("starts is what document_starts gives"),
            std::string::npos);
}

TEST_F(Library, TrainsAModelOfItsUser) {
  tri::Trainer t{ByteLM{}, book(), {.steps = 100, .batch = 8, .lr = 1e-2, .warmup = 4}};
  std::ostringstream table;
  table << t.memory();
  EXPECT_NE(table.str().find("predicted peak"), std::string::npos);
  const tri::MemoryReport::Rank rank = t.memory().ranks.at(0);
  std::uint64_t sum = rank.padding;
  for (const auto& [name, bytes] : rank.categories) sum += bytes;
  EXPECT_EQ(sum, rank.peak_bytes);
  // Embedding and head, and per block: two norms, q, k, v and o, up and down with biases.
  EXPECT_EQ(t.parameters(), 2U * 256 * 32 + 2 * (2 * 32 + 4 * 32 * 32 + 2 * 4 * 32 * 32 + 4 * 32 + 32));

  const std::vector<double> all = losses(t);
  ASSERT_EQ(all.size(), 100U);
  EXPECT_NEAR(all.front(), std::log(256), 0.1);
  EXPECT_LT(all.back(), 2.5);
  EXPECT_NEAR(t.evaluate().value(), all.back(), 0.5);
  EXPECT_EQ(t.generate("the ", {.tokens = 5}).size(), 5U);
  EXPECT_EQ(t.generate_tokens({116, 104}, {.tokens = 3, .temperature = 0}).size(), 3U);
  EXPECT_EQ(t.values("blocks.1.up.weight").size(), 4U * 32 * 32);
}

TEST_F(Library, HeldOutLossDoesNotDependOnMicroBatches) {
  std::vector<double> all;
  for (const std::int64_t micro : {0, 4, 1}) {
    tri::Trainer t{ByteLM{}, book(), {.steps = 1, .batch = 8, .micro_batch = micro}};
    all.push_back(t.evaluate(2).value());
  }
  EXPECT_NEAR(all[1], all[0], 1e-6);
  EXPECT_NEAR(all[2], all[0], 1e-6);
}

TEST_F(Library, StopsAndGoesOn) {
  tri::Trainer whole{ByteLM{}, book(), few(6)};
  const std::vector<double> expected = losses(whole);

  tri::Trainer t{ByteLM{}, book(), few(6)};
  std::vector<double> all;
  t.on_step([&](const tri::Metrics& m) {
    all.push_back(m.loss);
    return m.step == 2 ? tri::Next::stop : tri::Next::go;
  });
  const tri::Metrics at_stop = t.run();
  EXPECT_EQ(at_stop.step, 2);
  EXPECT_EQ(all.size(), 2U);
  const tri::Metrics last = t.run();
  EXPECT_EQ(last.step, 6);
  EXPECT_TRUE(last.eval_loss.has_value());
  EXPECT_EQ(all, expected);
}

TEST_F(Library, AnExceptionInACallbackEndsTheRunAndNothingElse) {
  tri::Trainer whole{ByteLM{}, book(), few(4)};
  const std::vector<double> expected = losses(whole);

  tri::Trainer t{ByteLM{}, book(), few(4)};
  t.on_step([](const tri::Metrics& m) -> tri::Next {
    if (m.step == 2) throw std::runtime_error("enough");
    return tri::Next::go;
  });
  EXPECT_THROW(t.run(), std::runtime_error);
  EXPECT_EQ(losses(t), std::vector<double>(expected.begin() + 2, expected.end()));
}

TEST_F(Library, SavesAndLoads) {
  const std::string run = (folder_ / "run").string();
  tri::Trainer first{ByteLM{}, book(), few(5)};
  std::vector<double> expected;
  first.on_step([&](const tri::Metrics& m) {
    if (m.step == 3) first.save(run);
    if (m.step > 3) expected.push_back(m.loss);
    return tri::Next::go;
  });
  first.run();

  tri::Trainer second{ByteLM{}, book(), few(5)};
  second.load(run);
  EXPECT_EQ(losses(second), expected);
  EXPECT_EQ(second.values("embed.weight"), first.values("embed.weight"));
  EXPECT_EQ(refusal([&] { second.load((folder_ / "nothing").string()); }),
            "there is no checkpoint in " + (folder_ / "nothing").string());
}

TEST_F(Library, WritesARunFolderWhenAsked) {
  tri::TrainOptions options = few(3);
  options.dir = (folder_ / "run").string();
  options.checkpoint_every = "1";
  std::vector<std::string> messages;
  options.log = [&](tri::LogLevel, const std::string& text) { messages.push_back(text); };
  tri::Trainer first{ByteLM{}, book(), options};
  EXPECT_FALSE(fs::exists(options.dir)) << "nothing is written before the run";
  first.run();
  EXPECT_TRUE(fs::exists(folder_ / "run" / "metrics.jsonl"));
  EXPECT_TRUE(fs::exists(folder_ / "run" / "checkpoints" / "step-00000003"));
  EXPECT_TRUE(messages.empty());
  EXPECT_NE(refusal([&] { tri::Trainer(ByteLM{}, book(), options); }).find("already holds a run"), std::string::npos);
}

TEST_F(Library, SeveralTrainersInOneProcess) {
  const auto run = [&](int width, int threads) {
    tri::Trainer t{ByteLM{.width = width}, book(), few(8), tri::Plan{.threads = threads}};
    return losses(t);
  };
  const std::vector<double> small = run(32, 1);
  const std::vector<double> large = run(64, 1);
  EXPECT_EQ(run(32, 2), small) << "the thread count changes nothing";

  std::vector<double> small_again;
  std::vector<double> large_again;
  std::thread one([&] { small_again = run(32, 2); });
  std::thread other([&] { large_again = run(64, 1); });
  one.join();
  other.join();
  EXPECT_EQ(small_again, small);
  EXPECT_EQ(large_again, large);
}

// Matrices that the plan names are sharded; what follows from them need not be named.
TEST_F(Library, ShardsAModelOfItsUserAsThePlanSays) {
  tri::Trainer plain{ByteLM{}, book(), few(6)};
  const std::vector<double> expected = losses(plain);
  const tri::Plan both{.mesh = "dp=2,tp=2",
                       .zero = 1,
                       .remat = "sqrt",
                       .sharding = {{"*.up.weight", "out:tp"}, {"*.down.weight", "in:tp"}}};
  tri::Plan first = both;
  first.sharding = {{"*.up.weight", "out:tp"}};
  for (const tri::Plan& plan : {both, first}) {
    tri::Trainer sharded{ByteLM{}, book(), few(6), plan};
    const std::vector<double> got = losses(sharded);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5 * expected[i]);
  }
  EXPECT_NE(
      refusal([&] {
        tri::Trainer(ByteLM{}, book(), few(6), tri::Plan{.mesh = "tp=2", .sharding = {{"*.upp.weight", "out:tp"}}});
      }).find("the nearest is"),
      std::string::npos);
}

TEST_F(Library, RefusesWhatTheProgramRefuses) {
  const auto by_file = [&](const std::string& toml) {
    return refusal([&] { trireme::train::parse_config(toml, ""); });
  };
  const auto by_code = [&](const tri::TrainOptions& options, const tri::Plan& plan) {
    return refusal([&] { tri::Trainer(ByteLM{}, book(), options, plan); });
  };
  EXPECT_EQ(by_code({}, {.zero = 4}), by_file("[parallel]\nzero = 4\n"));
  EXPECT_EQ(by_code({}, {.mesh = "x=2,dp=2"}), by_file("[parallel]\nmesh = \"x=2,dp=2\"\n"));
  EXPECT_EQ(by_code({}, {.mesh = "auto", .zero = 1, .remat = "sqrt", .activations = "half"}),
            by_file("[memory]\nremat = \"sqrt\"\nactivations = \"half\"\n"));
  EXPECT_EQ(by_code({}, {.remat = "root"}), by_file("[memory]\nremat = \"root\"\n"));
  EXPECT_EQ(by_code({.batch = 8, .micro_batch = 3}, {}), by_file("[train]\nbatch = 8\nmicro_batch = 3\n"));
  EXPECT_EQ(by_code({.lr = -1}, {}), "train.lr must be a positive number, got -1");
  EXPECT_NE(by_code({.schedule = "cosin"}, {}).find("cosine"), std::string::npos);
  EXPECT_NE(refusal([&] { tri::Trainer(ByteLM{}, tri::text_files({"no/such/file"})); }).find("no/such/file"),
            std::string::npos);
}

// What a program gets wrong of its data and its model is named as the program has it: by fields, not by keys.
TEST_F(Library, NamesTheFieldsOfDataAndModels) {
  const auto said = [](const tri::ModelConfig& model, const tri::Data& data) {
    const std::string message = refusal([&] { tri::Trainer(model, data); });
    for (const char* section : {"data.", "model."}) EXPECT_EQ(message.find(section), std::string::npos) << message;
    return message;
  };
  const auto expect_begin = [](const std::string& message, const std::string& begin) {
    EXPECT_EQ(message.substr(0, begin.size()), begin);
  };
  expect_begin(said({}, tri::text_files({"no/such/file"})), "text_files: there is no file or folder no/such/file");
  expect_begin(said({}, tri::text_files({})), "there is nothing to train on: name text in text_files, or token");
  const std::vector<std::int32_t> three = {1, 2, 3};
  expect_begin(said({}, tri::tokens_in_memory(three, {.vocab = 5, .context = 16, .holdout = 0.1})),
               "data: 3 tokens in rows of context = 16 are too few to train on and to hold some out; give at least 33");
  expect_begin(said({}, tri::tokens_in_memory(three, {.vocab = 5, .context = 16, .holdout = 0})),
               "data: 3 tokens in rows of context = 16 are too few to train on; give at least 17");
  expect_begin(said({}, tri::token_files({text_}, {})), "vocab must be given with token_files, or the tokenizer");
  expect_begin(said({}, tri::token_files({"none.bin"}, {.vocab = 9})), "token_files: there is no file none.bin");
  EXPECT_NE(said({}, tri::text_files({text_}, {.context = 1 << 24})).find("give more data, or a smaller context"),
            std::string::npos);
  expect_begin(said({.family = "mlp"}, tri::image_files("no.idx")), "image_files: there is no file no.idx");
  expect_begin(said({.width = 100, .heads = 3}, book()), "width = 100 must be a multiple of heads = 3; the nearest");
  expect_begin(said({.kv_heads = 2}, book()), "kv_heads = 2: gpt2 has as many key heads as heads (4); use family");
  expect_begin(said({.family = "resnet", .layers = 19}, tri::synthetic_images()), "layers = 19: a resnet has 18");
}

// The public structs are those of options.def: every key is set from them, and starts as it does in a file.
TEST_F(Library, OptionsAreThoseOfAConfiguration) {
  namespace train = trireme::train;
  const auto& families = trireme::models::builtin_families();
  const train::Config plain = trireme::settings(tri::ModelConfig{}, book(), {}, {}, families);
  train::Config defaults;
  for (const train::Key& key : train::keys_of(defaults)) {
    // What a Data says by its kind and files; its tokenizer may be that of a Pretrained.
    const std::set<std::string> by_kind = {"data.text", "data.tokens", "data.images", "data.tokenizer"};
    if (key.section() == "init" || by_kind.contains(key.name)) continue;
    EXPECT_TRUE(plain.is_given(key.name)) << key.name;
    if (key.section() == "model") continue;
    EXPECT_EQ(train::value_text(plain, key.name), train::to_text(key)) << key.name;
  }
  const tri::TrainOptions options{
      .optimizer = "sgd", .betas = {0.5, 0.6}, .checkpoint_every = "3", .staging = "64KiB", .log_every = 4};
  const tri::Plan plan{.mesh = "dp=2",
                       .compress = "topk:0.25",
                       .error_feedback = false,
                       .momentum_masking = true,
                       .compress_warmup = 5,
                       .remat = "every:2",
                       .overlap_wgrad = true};
  const train::Config config = trireme::settings(tri::ModelConfig{}, book(), options, plan, families);
  EXPECT_EQ(train::differing_keys(plain, config),
            (std::vector<std::string>{"train.optimizer", "train.betas", "parallel.mesh", "parallel.compress",
                                      "parallel.error_feedback", "parallel.momentum_masking",
                                      "parallel.compress_warmup", "memory.remat", "runtime.overlap_wgrad",
                                      "output.checkpoint_every", "output.staging", "output.log_every"}));
  EXPECT_EQ(config.parallel.compress.argument(), 0.25);
  EXPECT_EQ(config.output.checkpoint_every.steps, 3);
}

TEST_F(Library, SaysWhatIsWrongWithAModel) {
  const auto trainer = [&](const tri::Model& model) { return refusal([&] { tri::Trainer(model, book(), few(1)); }); };
  EXPECT_EQ(trainer({}), "the model is empty");
  EXPECT_EQ(trainer([](tri::Builder&, const tri::Batch&) { return tri::Value(); }),
            "the model \"custom\" gives nothing");
  EXPECT_EQ(trainer([](tri::Builder& b, const tri::Batch& in) { return embedding(b, in.tokens, 256, 8); }),
            "the model \"custom\" must give its loss, a scalar, when the batch has targets; it gives f32[8,32,8]");
  EXPECT_EQ(trainer([](tri::Builder& b, const tri::Batch& in) {
              return attention(b.scope("attn"), embedding(b, in.tokens, 256, 30), {.heads = 4});
            }),
            "attention 'attn': 4 heads do not divide the width 30");
  // A model's own exceptions pass through.
  EXPECT_THROW(tri::Trainer([](tri::Builder&, const tri::Batch&) -> tri::Value { throw std::logic_error("mine"); },
                            book(), few(1)),
               std::logic_error);
}

// Every layer for images, and a loss that needs no labels.
struct Pictures {
  bool regression = false;
  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    auto x = max_pool(relu(batch_norm(b.scope("bn"), conv(b.scope("conv"), in.images, 8))));
    x = avg_pool(silu(conv(b.scope("second"), x, 8, {.kernel = 1, .padding = 0})));
    x = dropout(b.scope("drop"), x, 0.1);
    if (!regression) return cross_entropy(b.scope("head"), linear(b.scope("head"), global_avg_pool(x), 4), in.labels);
    const tri::Extents image = in.images.shape();
    auto flat = reshape(x, {image[0], x.shape()[1] * x.shape()[2] * x.shape()[3]});
    auto y = linear(b.scope("out"), layer_norm(b.scope("norm"), flat), image[1] * image[2] * image[3]);
    y = reshape(y * b.parameter("gain", {y.shape()[1]}, tri::Init::constant(1)), image);
    return 0.5 * squared_error(b, y, in.images) + 0.5 * mean_absolute_error(b, y, in.images);
  }
};

TEST_F(Library, TrainsOnImages) {
  const tri::Data data = tri::synthetic_images({.size = 12, .channels = 1, .classes = 4});
  for (const bool regression : {false, true}) {
    tri::Trainer t{Pictures{regression}, data, {.steps = 150, .batch = 32, .micro_batch = 16, .lr = 1e-2, .warmup = 2}};
    const std::vector<double> all = losses(t);
    EXPECT_LT(all.back(), 0.9 * all.front());
    EXPECT_LT(t.evaluate(4).value(), 0.95 * all.front());
  }
}

TEST_F(Library, SharesWeightsAndGatesFeatures) {
  tri::Trainer t{[](tri::Builder& b, const tri::Batch& in) {
                   auto x = embedding(b.scope("embed"), in.tokens, 256, 16);
                   x = x + b.parameter("positions", {in.tokens.shape()[1], 16}, tri::Init::normal(0.02));
                   x = x + attention(b.scope("attn"), x, {.heads = 2, .kv_heads = 1, .rotary = 0});
                   auto gated = swiglu(linear(b.scope("gate"), x, 32, {.bias = false}), linear(b.scope("up"), x, 32));
                   x = x + linear(b.scope("down"), gated, 16);
                   auto table = b.scope("embed").parameter("weight", {256, 16});
                   return linear_cross_entropy(b.scope("head"), x, in.targets, table);
                 },
                 book(), few(10)};
  const std::vector<double> all = losses(t);
  EXPECT_LT(all.back(), all.front());
  EXPECT_THROW(t.values("head.weight"), tri::Error);
}

tri::Registry with_byte_lm() {
  tri::Registry registry;
  registry.add("bytelm", [](const tri::ModelConfig& c) {
    return ByteLM{static_cast<int>(c.layers), static_cast<int>(c.width), static_cast<int>(c.vocab)};
  });
  return registry;
}

TEST_F(Library, TrainsFamiliesByName) {
  const tri::Registry registry = with_byte_lm();
  EXPECT_EQ(registry.families().back(), "bytelm");
  tri::Trainer by_name({.family = "bytelm", .layers = 2, .width = 32}, book(), few(3), {}, registry);
  tri::Trainer by_value{ByteLM{}, book(), few(3)};
  EXPECT_EQ(losses(by_name), losses(by_value));

  tri::Trainer llama({.family = "llama", .layers = 1, .width = 16, .heads = 2}, book(), few(2));
  EXPECT_EQ(losses(llama).size(), 2U);
  EXPECT_NE(refusal([&] { tri::Trainer({.family = "bytelmm"}, book(), {}, {}, registry); }).find("bytelm"),
            std::string::npos);
  tri::Registry copy = registry;
  EXPECT_EQ(refusal([&] { copy.add("bytelm", nullptr); }), "there is a model family \"bytelm\" already");
}

// A table of positions, and the first rows of one: the command continues a sequence, and neither knows where it is.
TEST_F(Library, ModelsThatCannotContinueASequenceAreRefusedAsSuch) {
  const std::string dir = (folder_ / "run").string();
  const auto command = [&](std::vector<std::string> arguments, bool whole_table) {
    tri::Registry registry;
    registry.add("tabled", [=](const tri::ModelConfig& c) {
      return [=, context = c.context](tri::Builder& b, const tri::Batch& in) {
        const std::int64_t positions = in.tokens.shape()[1];
        tri::Value table = b.scope("pos").parameter("weight", {whole_table ? positions : context, 16});
        if (!whole_table) table = slice(table, 0, 0, positions);
        const tri::Value x = embedding(b.scope("embed"), in.tokens, 256, 16) + table;
        const tri::Value y = x + attention(b.scope("attn"), x, {.heads = 2, .rotary = 0});
        return linear_cross_entropy(b.scope("head"), y, in.targets, 256);
      };
    });
    arguments.insert(arguments.begin(), "tabled");
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = tri::cli_main(static_cast<int>(argv.size()), argv.data(), registry);
    return std::pair(code, testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr());
  };
  for (const bool whole_table : {true, false})
    for (const std::string context : {"16", "4"}) {
      const auto [trained, text] =
          command({"train", "--model.family=tabled", "--model.context=" + context, "--train.batch=4", "--overwrite",
                   "--data.text=" + text_, "--train.steps=1", "--output.dir=" + dir},
                  whole_table);
      ASSERT_EQ(trained, 0) << text;
      const auto [code, error] = command({"generate", "--from", dir, "--prompt", "the", "--tokens=4"}, whole_table);
      EXPECT_EQ(code, 2) << error;
      EXPECT_NE(error.find("model.family = \"tabled\": generation takes a prompt in pieces"), std::string::npos)
          << error;
      EXPECT_NE(error.find("the nearest is attention's own rotary positions"), std::string::npos) << error;
    }
}

TEST_F(Library, GivesEveryCommandToAUsersModel) {
  const auto run = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bytelm");
    std::vector<char*> argv;
    argv.reserve(arguments.size());
    for (std::string& a : arguments) argv.push_back(a.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = tri::cli_main(static_cast<int>(argv.size()), argv.data(), with_byte_lm());
    return std::pair(code, testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr());
  };
  const std::string dir = (folder_ / "run").string();
  const std::vector<std::string> small = {"--model.family=bytelm", "--model.layers=1",   "--model.width=16",
                                          "--model.context=16",    "--train.batch=4",    "--data.text=" + text_,
                                          "--train.steps=3",       "--output.dir=" + dir};
  const auto with = [&](std::vector<std::string> command) {
    command.insert(command.end(), small.begin(), small.end());
    return run(command);
  };
  const auto [trained, text] = with({"train"});
  EXPECT_EQ(trained, 0) << text;
  EXPECT_NE(text.find("bytelm 1×16"), std::string::npos) << text;
  EXPECT_EQ(with({"train", "--resume"}).first, 0);
  EXPECT_EQ(with({"memory"}).first, 0);
  EXPECT_EQ(with({"inspect", "graph"}).first, 0);
  EXPECT_EQ(with({"bench", "step", "--steps=1", "--warmup=0"}).first, 0);
  EXPECT_EQ(run({"generate", "--from", dir, "--prompt", "the", "--tokens=4"}).first, 0);
  EXPECT_NE(run({"config"}).second.find("resnet | bytelm"), std::string::npos);
  const auto [code, error] = run({"memory", "--model.family=bytlm"});
  EXPECT_EQ(code, 2);
  EXPECT_NE(error.find("bytelm"), std::string::npos) << error;
}

}  // namespace
