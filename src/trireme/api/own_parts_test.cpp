// Data, weights and layers that a user of the library brings.
#include <gtest/gtest.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "support/library.h"
#include "support/source_dir.h"

namespace {

using trireme::testing::expect_part;
using trireme::testing::refusal;

namespace fs = std::filesystem;

constexpr std::int64_t kVocab = 50;
constexpr std::int64_t kContext = 8;

// A small model with a place to try things at: what `through` makes of the features [rows, context, 16].
struct Small {
  std::function<tri::Value(tri::Builder&, const tri::Value&)> through;
  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    tri::Value x = embedding(b.scope("embed"), in.tokens, kVocab, 16);
    if (through) x = through(b, x);
    return linear_cross_entropy(b.scope("head"), x, in.targets, kVocab);
  }
};

std::vector<std::int32_t> some_tokens(int count = 400) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = (i * i + i / 3) % static_cast<int>(kVocab);
  return tokens;
}

tri::Data in_memory() {
  return tri::tokens_in_memory(some_tokens(), {.vocab = kVocab, .context = kContext, .order = "sequential"});
}

tri::TrainOptions few() { return {.steps = 4, .batch = 4, .lr = 1e-2, .warmup = 0}; }

std::vector<double> losses(tri::Trainer t) { return trireme::testing::losses(t); }

class OwnParts : public ::testing::Test {
 protected:
  OwnParts() { fs::create_directories(folder_); }
  ~OwnParts() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::temp_directory_path() / ("trireme_own_" + std::to_string(::getpid()));
};

TEST_F(OwnParts, TokensInMemoryAreLikeTheirFile) {
  const std::vector<std::int32_t> tokens = some_tokens();
  std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
  const std::string file = (folder_ / "tokens.bin").string();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(narrow.data()), static_cast<std::streamsize>(narrow.size() * 2));
  const tri::Data on_disk =
      tri::token_files({file}, {.vocab = kVocab, .context = kContext, .order = "sequential", .holdout = 0});
  tri::Data memory = in_memory();
  memory.holdout = 0;
  EXPECT_EQ(losses({Small{}, memory, few()}), losses({Small{}, on_disk, few()}));
}

TEST_F(OwnParts, SamplesFromAFunction) {
  std::atomic<int> calls = 0;
  const auto read = [&](std::int64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    ++calls;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((sample + static_cast<std::int64_t>(i)) % kVocab);
      targets[i] = (tokens[i] + 1) % static_cast<std::int32_t>(kVocab);
    }
  };
  tri::TrainOptions options = few();
  options.steps = 200;
  options.lr = 5e-2;
  tri::Trainer t{Small{}, tri::own_tokens(200, read, {.vocab = kVocab, .context = kContext}), options};
  const double before = t.evaluate().value();
  EXPECT_LT(t.run().eval_loss.value(), 0.5 * before);
  EXPECT_GT(calls, 200);
  // A token that the model does not have ends the run by its sample.
  const auto bad = [](std::int64_t, std::span<std::int32_t> tokens, std::span<std::int32_t>) { tokens[0] = 50; };
  tri::Trainer other{Small{}, tri::own_tokens(20, bad, {.vocab = kVocab, .context = kContext}), few()};
  try {
    other.run();
    FAIL();
  } catch (const tri::Error& e) {
    expect_part(e.message(), "token 50 is not from 0 to below 50");
  }
  expect_part(refusal([&] { tri::Trainer(Small{}, tri::own_tokens(1, read, {.vocab = 50}), few()); }), "too few");
  expect_part(refusal([&] { tri::Trainer(Small{}, tri::own_tokens(9, read, {}), few()); }), "vocab");
}

TEST_F(OwnParts, ImagesFromAFunction) {
  const auto read = [](std::int64_t sample, std::span<float> pixels) {
    const auto label = static_cast<std::int32_t>(sample % 3);
    std::fill(pixels.begin(), pixels.end(), static_cast<float>(label) - 1.0F);
    return label;
  };
  const auto model = [](tri::Builder& b, const tri::Batch& in) {
    const tri::Value x = reshape(in.images, {in.images.shape()[0], 4 * 4});
    return cross_entropy(b, linear(b.scope("out"), x, 3), in.labels);
  };
  tri::TrainOptions options = few();
  options.steps = 100;
  tri::Trainer t{model, tri::own_images(90, read, {.size = 4, .channels = 1, .classes = 3}), options};
  const tri::Metrics last = t.run();
  EXPECT_LT(last.eval_loss.value(), 0.5);
  // The last five are held out; image by image they are judged as evaluation does.
  double right = 0;
  for (std::int64_t sample = 85; sample < 90; ++sample) {
    std::vector<float> pixels(4 * 4);
    const std::int32_t label = read(sample, pixels);
    const std::vector<float> logits = t.forward_image(pixels);
    ASSERT_EQ(logits.size(), 3U);
    right += std::max_element(logits.begin(), logits.end()) - logits.begin() == label ? 1 : 0;
  }
  EXPECT_GT(right, 0);
  EXPECT_NEAR(last.eval_accuracy.value(), right / 5, 1e-6);
  expect_part(refusal([&] { t.forward_image({1, 2}); }), "16 numbers, got 2");
  std::vector<float> pixels(4 * 4);
  pixels[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal([&] { t.forward_image(pixels); }),
            "forward_image: the prediction is not finite: input 'images', element 5 is NaN");
  expect_part(refusal([&] { t.forward({1, 2}); }), "forward_image");
  expect_part(refusal([&] { t.generate_tokens({1}); }), "does not predict tokens");
}

TEST_F(OwnParts, WeightsAreReadAndSet) {
  tri::Trainer t{Small{}, in_memory(), few()};
  std::vector<std::string> names;
  for (const tri::Parameter& p : t.parameter_list()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed.weight", "head.weight"}));
  const std::vector<std::int32_t> tokens(kContext, 3);
  const std::vector<float> before = t.forward(tokens);
  ASSERT_EQ(before.size(), static_cast<std::size_t>(kContext * kVocab));
  // The logits are the product of both weights.
  const std::vector<float> embed = t.values("embed.weight");
  const std::vector<float> head = t.values("head.weight");
  const float expected =
      std::inner_product(embed.begin() + 3 * 16, embed.begin() + 4 * 16, head.begin() + 7 * 16, 0.0F);
  EXPECT_NEAR(before[7], expected, 1e-6F);
  t.set_values("head.weight", std::vector<float>(head.size(), 0.0F));
  for (const float logit : t.forward(tokens)) EXPECT_EQ(logit, 0.0F);
  expect_part(refusal([&] { t.set_values("head.weight", {1, 2}); }), "800 values");
  expect_part(refusal([&] { t.values("head.wieght"); }), "did you mean 'head.weight'?");
  expect_part(refusal([&] { t.forward({1, 2}); }), "8 tokens");
  expect_part(refusal([&] { t.forward(std::vector<std::int32_t>(kContext, 50)); }), "token 50");
}

// The loss of what is held out is that of the predictions for it, token by token.
TEST_F(OwnParts, HeldOutLossIsThatOfTheLogits) {
  const std::vector<std::int32_t> tokens = some_tokens();
  tri::Trainer t{Small{}, in_memory(), few()};
  t.run();
  const std::int64_t samples = (std::ssize(tokens) - 1) / kContext, held_out = samples / 20;  // 5%
  double sum = 0;
  for (std::int64_t sample = samples - held_out; sample < samples; ++sample) {
    const auto first = tokens.begin() + sample * kContext;
    const std::vector<float> logits = t.forward({first, first + kContext});
    for (std::int64_t at = 0; at < kContext; ++at) {
      const auto row = logits.begin() + at * kVocab;
      double total = 0;
      for (std::int64_t word = 0; word < kVocab; ++word) total += std::exp(static_cast<double>(row[word]));
      sum += std::log(total) - static_cast<double>(row[first[at + 1]]);
    }
  }
  ASSERT_EQ(held_out, 2);
  EXPECT_NEAR(t.evaluate().value(), sum / static_cast<double>(held_out * kContext), 1e-5);
}

// What leaves a value as it was trains like no layer at all, forwards and backwards.
TEST_F(OwnParts, EverydayOps) {
  const auto train = [&](std::function<tri::Value(tri::Builder&, const tri::Value&)> through) {
    return losses({Small{std::move(through)}, in_memory(), few()});
  };
  const std::vector<double> plain = train({});
  EXPECT_EQ(train([](tri::Builder&, const tri::Value& x) { return concat(split(x, 4), -1); }), plain);
  EXPECT_EQ(train([](tri::Builder&, const tri::Value& x) { return transpose(transpose(x, 0, 2), 2, 0); }), plain);
  EXPECT_EQ(train([](tri::Builder&, const tri::Value& x) { return permute(permute(x, {2, 0, 1}), {1, 2, 0}); }), plain);
  EXPECT_EQ(train([](tri::Builder&, const tri::Value& x) {
              return tri::concat({slice(x, 2, 0, 5), slice(x, 2, 5, 16)}, 2);
            }),
            plain);
  EXPECT_EQ(train([](tri::Builder&, const tri::Value& x) {
              const tri::Extents s = x.shape();
              return mean(reshape(x, {s[0], s[1], s[2], 1}), -1);
            }),
            plain);
  const auto twice = train([](tri::Builder&, const tri::Value& x) { return 2.0 * x; });
  const auto summed = train([](tri::Builder&, const tri::Value& x) {
    tri::Extents s = x.shape();
    s.insert(s.begin() + 2, 1);
    const tri::Value wide = reshape(x, s);
    return sum(tri::concat({wide, wide}, 2), 2);
  });
  ASSERT_EQ(twice.size(), summed.size());
  for (std::size_t i = 0; i < twice.size(); ++i) EXPECT_NEAR(twice[i], summed[i], 1e-5);
  expect_part(refusal([&] { train([](tri::Builder&, const tri::Value& x) { return split(x, 3).front(); }); }), "split");
  expect_part(refusal([&] { train([](tri::Builder&, const tri::Value& x) { return slice(x, 2, 5, 17); }); }), "slice");
  expect_part(refusal([&] { train([](tri::Builder&, const tri::Value& x) { return mean(x, 3); }); }), "mean");
}

// By numbers: the head shows the first 16 features as logits, and the embedding is known.
TEST_F(OwnParts, SoftmaxMeanAndSumGiveTheirNumbers) {
  constexpr std::int64_t kWidth = 16;
  // Row t of the embedding, element i.
  const auto value = [](std::int32_t t, std::int64_t i) {
    return static_cast<double>((7 * t + 3 * i) % 11) / 5 - 1 + 0.01 * static_cast<double>(i);
  };
  const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  ASSERT_EQ(std::ssize(tokens), kContext);
  const auto shown = [&](std::function<tri::Value(tri::Builder&, const tri::Value&)> through) {
    tri::Trainer t{Small{std::move(through)}, in_memory(), few()};
    std::vector<float> embed, head(static_cast<std::size_t>(kVocab * kWidth));
    for (std::int32_t row = 0; row < kVocab; ++row)
      for (std::int64_t i = 0; i < kWidth; ++i) embed.push_back(static_cast<float>(value(row, i)));
    for (std::int64_t i = 0; i < kWidth; ++i) head[static_cast<std::size_t>(i * kWidth + i)] = 1;
    t.set_values("embed.weight", embed);
    t.set_values("head.weight", head);
    return t.forward(tokens);
  };
  const auto expect = [&](const std::vector<float>& logits,
                          const std::function<double(std::size_t, std::int64_t)>& of) {
    ASSERT_EQ(logits.size(), static_cast<std::size_t>(kContext * kVocab));
    for (std::size_t at = 0; at < tokens.size(); ++at)
      for (std::int64_t i = 0; i < kWidth; ++i)
        EXPECT_NEAR(logits[at * static_cast<std::size_t>(kVocab) + static_cast<std::size_t>(i)], of(at, i), 1e-6)
            << "position " << at << ", feature " << i;
  };
  const auto repeat = [](const tri::Value& x, int dimension, std::int64_t times) {
    tri::Extents s = x.shape();
    s.insert(s.begin() + dimension, 1);
    return tri::concat(std::vector<tri::Value>(static_cast<std::size_t>(times), reshape(x, s)), dimension);
  };
  expect(shown([](tri::Builder&, const tri::Value& x) { return softmax(x); }), [&](std::size_t at, std::int64_t i) {
    double total = 0;
    for (std::int64_t j = 0; j < kWidth; ++j) total += std::exp(value(tokens[at], j));
    return std::exp(value(tokens[at], i)) / total;
  });
  const auto over_features = [&](std::size_t at) {
    double total = 0;
    for (std::int64_t j = 0; j < kWidth; ++j) total += value(tokens[at], j);
    return total;
  };
  const auto over_positions = [&](std::int64_t i) {
    double total = 0;
    for (const std::int32_t token : tokens) total += value(token, i);
    return total;
  };
  expect(shown([&](tri::Builder&, const tri::Value& x) { return repeat(mean(x, -1), 2, kWidth); }),
         [&](std::size_t at, std::int64_t) { return over_features(at) / kWidth; });
  expect(shown([&](tri::Builder&, const tri::Value& x) { return repeat(mean(x, 1), 1, kContext); }),
         [&](std::size_t, std::int64_t i) { return over_positions(i) / kContext; });
  expect(shown([&](tri::Builder&, const tri::Value& x) { return repeat(sum(x, 1), 1, kContext); }),
         [&](std::size_t, std::int64_t i) { return over_positions(i); });
}

// Files as MNIST's: sizes and classes are the files' own, the test part is held out, and what they show is learned.
TEST_F(OwnParts, ImagesFromFiles) {
  const auto word = [](std::uint32_t n) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(n >> shift & 0xff);
    return bytes;
  };
  constexpr std::uint32_t kSize = 6;
  const auto write = [&](const std::string& part, std::uint32_t images) {
    std::string pixels = std::string("\0\0\x08\x03", 4) + word(images) + word(kSize) + word(kSize);
    std::string labels = std::string("\0\0\x08\x01", 4) + word(images);
    for (std::uint32_t n = 0; n < images; ++n) {
      labels += static_cast<char>(n % 3);
      for (std::uint32_t i = 0; i < kSize * kSize; ++i)
        pixels += static_cast<char>(i / (kSize * kSize / 3) == n % 3 ? 200 + n % 40 : 10 + n % 7);
    }
    std::ofstream(folder_ / (part + "-images-idx3-ubyte"), std::ios::binary) << pixels;
    std::ofstream(folder_ / (part + "-labels-idx1-ubyte"), std::ios::binary) << labels;
  };
  write("train", 60);
  write("t10k", 9);
  const auto model = [](tri::Builder& b, const tri::Batch& in) {
    const tri::Extents s = in.images.shape();
    EXPECT_EQ(tri::Extents(s.begin() + 1, s.end()), (tri::Extents{kSize, kSize, 1}));
    return cross_entropy(b, linear(b.scope("out"), reshape(in.images, {s[0], kSize * kSize}), 3), in.labels);
  };
  tri::TrainOptions options = few();
  options.steps = 60;
  tri::Trainer t{model, tri::image_files(folder_.string()), options};
  const double before = t.evaluate().value();
  const tri::Metrics last = t.run();
  EXPECT_LT(last.eval_loss.value(), 0.2 * before);
  EXPECT_EQ(last.eval_accuracy.value(), 1);
  expect_part(refusal([&] { tri::Trainer(model, tri::image_files((folder_ / "nowhere").string()), few()); }),
              "nowhere");
}

TEST_F(OwnParts, AScopeThatIsUsedTwiceByAccidentIsRefused) {
  const auto two = [](const std::string& first, const std::string& second, bool shared) {
    return Small{[=](tri::Builder& b, const tri::Value& x) {
      const tri::Builder again = b.scope(second);
      return linear(shared ? again.shared() : again, linear(b.scope(first), x, 16), 16);
    }};
  };
  const auto parameters = [&](const Small& model) { return tri::Trainer(model, in_memory(), few()).parameters(); };
  EXPECT_EQ(parameters(two("a", "b", false)), 2 * 50 * 16 + 2 * (16 * 16 + 16));
  EXPECT_EQ(parameters(two("a", "a", true)), 2 * 50 * 16 + 16 * 16 + 16);
  expect_part(refusal([&] { parameters(two("a", "a", false)); }), "linear in scope 'a'");
}

TEST_F(OwnParts, ABatchNormThatIsSharedIsRefused) {
  const Small twice{[](tri::Builder& b, const tri::Value& x) {
    return batch_norm(b.scope("bn").shared(), batch_norm(b.scope("bn"), x));
  }};
  expect_part(refusal([&] { tri::Trainer(twice, in_memory(), few()); }), "batch_norm in scope 'bn'");
}

TEST_F(OwnParts, ABatchThatHasNoImagesSaysSo) {
  const auto model = [](tri::Builder& b, const tri::Batch& in) {
    return cross_entropy(b, linear(b.scope("out"), in.images, 3), in.labels);
  };
  expect_part(refusal([&] { tri::Trainer(model, in_memory(), few()); }), "absent");
}

TEST_F(OwnParts, MemoryOfEveryRank) {
  const tri::MemoryReport two = tri::Trainer(Small{}, in_memory(), few(), {.mesh = "dp=2", .zero = 1}).memory();
  EXPECT_EQ(two.ranks.size(), 2U);
  const tri::MemoryReport served =
      tri::Trainer(Small{}, in_memory(), few(), {.mesh = "dp=2", .server = "sync", .servers = 2}).memory();
  ASSERT_EQ(served.ranks.size(), 4U);
  EXPECT_FALSE(served.ranks[1].server);
  EXPECT_TRUE(served.ranks[2].server);
  EXPECT_GT(served.ranks[3].peak_bytes, 0U);
}

// A matrix of one row and a bias of one element have no shards; a rank that has none of the rows must not lose them.
TEST_F(OwnParts, WeightsOfOneRowUnderZero) {
  const auto model = [](tri::Builder& b, const tri::Batch& in) {
    const tri::Value x = reshape(in.images, {in.images.shape()[0], 4 * 4});
    const tri::Value one = linear(b.scope("one"), x, 1, {.deviation = 0.3});
    return cross_entropy(b, linear(b.scope("out"), one, 3, {.deviation = 0.3}), in.labels);
  };
  const auto read = [](std::int64_t sample, std::span<float> pixels) {
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<float>((7 * sample + (3 + sample) * static_cast<std::int64_t>(i)) % 11) / 5 - 1;
    return static_cast<std::int32_t>(sample % 3);
  };
  const tri::Data data = tri::own_images(40, read, {.size = 4, .channels = 1, .classes = 3, .order = "sequential"});
  for (const char* precision : {"f32", "bf16"}) {
    tri::TrainOptions options = few();
    options.precision = precision;
    tri::Trainer one{model, data, options};
    one.run();
    const std::vector<float> expected = one.values("one.weight");
    for (const int zero : {1, 2, 3}) {
      tri::Trainer t{model, data, options, {.mesh = "dp=4", .zero = zero}};
      t.run();
      const std::vector<float> weight = t.values("one.weight");
      ASSERT_EQ(weight.size(), expected.size());
      const double most = std::string(precision) == "f32" ? 1e-6 : 2e-3;
      for (std::size_t i = 0; i < weight.size(); ++i)
        EXPECT_NEAR(weight[i], expected[i], most) << precision << ", ZeRO-" << zero << ", element " << i;
    }
  }
}

TEST_F(OwnParts, PretrainedModelOnTextOfOnesOwn) {
  const std::string source = trireme::source_dir() + "/tests/huggingface/gpt2-tied";
  const std::string text = (folder_ / "book.txt").string();
  std::ofstream out(text);
  for (int i = 0; i < 300; ++i) out << "the trireme has three rows of oars " << i % 5 << "\n";
  out.close();
  const std::string exported = (folder_ / "out").string();
  std::vector<float> trained;
  {
    tri::Trainer t{tri::Pretrained{source}, tri::text_files({text}, {.context = 16}), few()};
    const double before = t.evaluate().value();
    EXPECT_LT(t.run().eval_loss.value(), before);
    t.export_huggingface(exported);
    trained = t.values(t.parameter_list().front().name);
    EXPECT_FALSE(t.generate("the ", {.tokens = 5}).empty());
    expect_part(refusal([&] { t.export_huggingface(exported); }), "there already");
  }
  tri::Trainer again{tri::Pretrained{exported}, tri::text_files({text}, {.context = 16}), few()};
  EXPECT_EQ(again.values(again.parameter_list().front().name), trained);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);  // nothing else was left
  const auto longer = [&] { tri::Trainer(tri::Pretrained{source}, tri::text_files({text}, {.context = 9999}), few()); };
  expect_part(refusal(longer), "context = 9999");
}

}  // namespace
