#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/folder.h"
#include "support/token_files.h"
#include "trireme/core/error.h"
#include "trireme/data/dataset.h"
#include "trireme/data/loader.h"
#include "trireme/data/sampler.h"
#include "trireme/data/synthetic_images.h"
#include "trireme/data/text_files.h"
#include "trireme/data/tokenizer/byte_tokenizer.h"

namespace trireme::data {
namespace {

using test::counting;
using test::expect_contains;
using test::Folder;
using test::refusal;
using test::tokens_config;

TEST(Permutation, IsOneForEverySize) {
  for (const std::uint64_t n : {1, 2, 3, 5, 16, 17, 64, 65, 1000, 4097}) {
    const Permutation permutation(n, 7);
    std::vector<bool> hit(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t j = permutation(i);
      ASSERT_LT(j, n);
      ASSERT_FALSE(hit[j]) << n;
      hit[j] = true;
    }
  }
}

TEST(Permutation, LooksRandom) {
  constexpr std::uint64_t n = 10000;
  const Permutation permutation(n, 3);
  double product = 0;
  std::uint64_t fixed = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t j = permutation(i);
    fixed += j == i ? 1U : 0U;
    product += (static_cast<double>(i) - (n - 1) / 2.0) * (static_cast<double>(j) - (n - 1) / 2.0);
  }
  const double correlation = product / (static_cast<double>(n) * (static_cast<double>(n) * n - 1) / 12);
  EXPECT_LT(std::abs(correlation), 0.04);
  EXPECT_LT(fixed, 8U);
}

TEST(Sampler, ShuffledCoversEachEpochOnceAndReshuffles) {
  const Folder folder;
  const Data data =
      open_data(tokens_config(folder.write_tokens("t.bin", counting(1001))), {.context = 10, .vocab = 50000});
  ASSERT_EQ(data.train->samples(), 100);
  const Sampler sampler(data.train, Order::shuffled, 1, 8);
  std::vector<std::int64_t> order(300);
  for (std::int64_t p = 0; p < 300; ++p) order[static_cast<std::size_t>(p)] = sampler.sample(p / 8, p % 8);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> seen(order.begin() + epoch * 100, order.begin() + (epoch + 1) * 100);
    std::sort(seen.begin(), seen.end());
    for (std::int64_t i = 0; i < 100; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
  EXPECT_FALSE(std::equal(order.begin(), order.begin() + 100, order.begin() + 100));
  EXPECT_NE(order[0], Sampler(data.train, Order::shuffled, 2, 8).sample(0, 0));
}

TEST(Sampler, SequentialFollowsTheContractAndWraps) {
  const Folder folder;
  const Data data = open_data(tokens_config(folder.write_tokens("t.bin", counting(31))), {.context = 10, .vocab = 31});
  ASSERT_EQ(data.train->samples(), 3);
  const Sampler sampler(data.train, Order::sequential, 1, 2);
  Batch batch;
  sampler.fill(0, {{0, 2}}, batch);
  for (std::int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(batch.tokens[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(batch.targets[static_cast<std::size_t>(i)], i + 1);
  }
  sampler.fill(1, {{0, 2}}, batch);
  EXPECT_EQ(batch.tokens[0], 20);
  EXPECT_EQ(batch.targets[9], 30);
  EXPECT_EQ(batch.tokens[10], 0);
}

TEST(Sampler, RowsAreTheSameHoweverTheBatchIsCut) {
  const Folder folder;
  const Data data =
      open_data(tokens_config(folder.write_tokens("t.bin", counting(5000))), {.context = 7, .vocab = 50000});
  const Sampler sampler(data.train, Order::shuffled, 5, 12);
  Batch whole;
  Batch part;
  sampler.fill(3, {{0, 12}}, whole);
  for (std::int64_t first = 0; first < 12; first += 4) {
    sampler.fill(3, {{first, 4}}, part);
    EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin() + first * 7));
    EXPECT_TRUE(std::equal(part.targets.begin(), part.targets.end(), whole.targets.begin() + first * 7));
  }
}

TEST(Loader, ReadsAheadInOrderAndStops) {
  const Folder folder;
  const Data data =
      open_data(tokens_config(folder.write_tokens("t.bin", counting(5000))), {.context = 7, .vocab = 50000});
  const Sampler sampler(data.train, Order::shuffled, 5, 12);
  Loader loader(sampler, {{4, 4}}, 10);
  Batch expected;
  for (std::int64_t step = 10; step < 40; ++step) {
    sampler.fill(step, {{4, 4}}, expected);
    const Batch& batch = loader.next();
    EXPECT_EQ(batch.step, step);
    EXPECT_EQ(batch.global_row(0), 4);
    ASSERT_EQ(batch.tokens, expected.tokens);
    ASSERT_EQ(batch.targets, expected.targets);
  }
}

TEST(Loader, FollowingIsWhatNextReturns) {
  const Sampler sampler(std::make_shared<SyntheticImages>(12, 3, 10, 0, 500), Order::shuffled, 5, 24);
  Loader loader(sampler, {{0, 24}}, 3, {.images = DType::bf16});
  for (std::int64_t step = 3; step < 20; ++step) {
    ASSERT_TRUE(loader.wait());
    const Batch* following = loader.following();
    ASSERT_NE(following, nullptr);
    EXPECT_EQ(following->step, step);
    const auto* const pixels = following->narrow_images.data();
    const Batch& batch = loader.next();
    EXPECT_EQ(batch.step, step);
    EXPECT_EQ(batch.narrow_images.data(), pixels);  // in the same place
  }
}

TEST(Loader, ReadsTheRowsOfAProcessAlone) {
  const Folder folder;
  const Data data =
      open_data(tokens_config(folder.write_tokens("t.bin", counting(5000))), {.context = 7, .vocab = 50000});
  const Sampler sampler(data.train, Order::shuffled, 5, 12);
  const std::vector<RowRange> rows = {{2, 1}, {8, 2}};
  Batch whole;
  sampler.fill(10, {{0, 12}}, whole);
  Loader loader(sampler, rows, 10);
  const Batch& batch = loader.next();
  ASSERT_EQ(batch.rows, 3);
  ASSERT_EQ(batch.tokens.size(), 21U);
  for (const std::int64_t row : {2, 8, 9}) {
    const std::int64_t at = batch.position({row, 1});
    EXPECT_EQ(batch.global_row(at), row);
    EXPECT_TRUE(
        std::equal(batch.tokens.begin() + at * 7, batch.tokens.begin() + (at + 1) * 7, whole.tokens.begin() + row * 7));
  }
  EXPECT_EQ(batch.position({8, 2}), 1);
  EXPECT_THROW(batch.position({7, 2}), Error);
  EXPECT_THROW(batch.position({2, 2}), Error);
}

TEST(Loader, HelpersMakeTheSameImages) {
  const Sampler sampler(std::make_shared<SyntheticImages>(12, 3, 10, 0, 500), Order::shuffled, 5, 24);
  Loader alone(sampler, {{3, 17}}, 2, {.images = DType::bf16});
  Loader helped(sampler, {{3, 17}}, 2, {.threads = 4, .images = DType::bf16});
  Batch expected;
  for (std::int64_t step = 2; step < 12; ++step) {
    sampler.fill(step, {{3, 17}}, expected);
    const Batch& one = alone.next();
    const Batch& four = helped.next();
    ASSERT_EQ(one.images, expected.images);
    ASSERT_EQ(four.images, expected.images);
    ASSERT_EQ(four.labels, expected.labels);
    ASSERT_EQ(four.narrow_images, one.narrow_images);
    ASSERT_EQ(four.narrow_images.size(), four.images.size());
  }
}

class FailsAt final : public Dataset {
 public:
  std::int64_t samples() const override { return 100; }
  std::int64_t tokens_per_sample() const override { return 1; }
  void resize(Batch& batch, std::int64_t rows) const override {
    batch.labels.resize(static_cast<std::size_t>(rows));
    batch.images.resize(static_cast<std::size_t>(rows));
  }
  void read(std::int64_t sample, std::int64_t row, Batch& batch) const override {
    if (sample == 5) fail("sample 5 is bad");
    batch.labels[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(sample);
  }
};

TEST(Loader, ForwardsAnErrorWhereItBelongs) {
  for (const int threads : {1, 3}) {
    Loader loader(Sampler(std::make_shared<FailsAt>(), Order::sequential, 1, 2), {{0, 2}}, 0, {.threads = threads});
    EXPECT_EQ(loader.next().labels[1], 1);
    EXPECT_TRUE(loader.wait());
    EXPECT_FALSE(loader.wait(2));
    EXPECT_EQ(loader.next().labels[1], 3);
    EXPECT_FALSE(loader.wait());
    EXPECT_THROW(loader.next(), Error);
    EXPECT_THROW(loader.next(), Error);
  }
}

TEST(Text, FoldersAreSortedAndHiddenAndBinaryFilesLeftOut) {
  const Folder folder;
  folder.write("b.txt", "bbb");
  folder.write("a/z.txt", "zzz");
  folder.write(".git/config", "hidden");
  folder.write("a/image", std::string("P5\0\1", 4));
  folder.write("empty", "");
  const std::vector<std::string> twice = {folder.path(), folder.path("b.txt")};
  const std::vector<TextFile> files = find_text_files(twice, "text");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, "a/z.txt");
  EXPECT_EQ(files[1].name, "b.txt");
}

TEST(Text, WholeFilesAreHeldOut) {
  std::vector<TextFile> files;
  for (int i = 0; i < 200; ++i) {
    const std::string name = "f" + std::to_string(i);
    files.push_back({name, name, static_cast<std::uint64_t>(100 + 37 * i % 500)});
  }
  const auto bytes = [](const std::vector<TextFile>& list) {
    return std::accumulate(list.begin(), list.end(), 0.0,
                           [](double s, const TextFile& f) { return s + static_cast<double>(f.bytes); });
  };
  const Split split = split_files(files, 0.05, 129);
  EXPECT_EQ(split.train.size() + split.held_out.size(), 200U);
  EXPECT_NEAR(bytes(split.held_out) / bytes(files), 0.05, 0.005);
  // Independent of the order and of where the folder lies.
  std::reverse(files.begin(), files.end());
  Split again = split_files(files, 0.05, 129);
  EXPECT_EQ(bytes(again.held_out), bytes(split.held_out));
}

TEST(Text, TwoFilesGiveOneToEachSide) {
  const Folder folder;
  folder.write("a.txt", std::string(1000, 'a'));
  folder.write("b.txt", std::string(2000, 'b'));
  DataConfig config;
  config.text = {folder.path()};
  const Data data = open_data(config, {.context = 16});
  EXPECT_EQ(data.vocab, 256);
  EXPECT_EQ(data.train->samples(), 1999 / 16);
  EXPECT_EQ(data.eval->samples(), 999 / 16);
  EXPECT_EQ(data.summary, "2 text files, 3,000 B, 1 whole file held out, 33% of the bytes");
}

TEST(Text, OneFileKeepsItsTail) {
  const Folder folder;
  DataConfig config;
  config.text = {folder.write("book.txt", std::string(10000, 'x'))};
  const Data data = open_data(config, {.context = 16});
  EXPECT_EQ(data.train->samples(), 9499 / 16);
  EXPECT_EQ(data.eval->samples(), 499 / 16);
  EXPECT_NEAR(data.unigram_entropy, -std::log(9501.0 / (9500 + 256)), 1e-12);
}

TEST(Text, BadInput) {
  const Folder folder;
  DataConfig config;
  config.text = {folder.path("none")};
  expect_contains(refusal([&] { open_data(config, {.context = 16}); }), "text: there is no file or folder");
  config.text = {folder.path()};
  expect_contains(refusal([&] { open_data(config, {.context = 16}); }), "no text in");
  folder.write("a.txt", "tiny");
  expect_contains(refusal([&] { open_data(config, {.context = 16}); }), "too few");
  folder.write("b.txt", "small");
  expect_contains(refusal([&] { open_data(config, {.context = 16}); }), "too short");
  config.holdout = 0;
  expect_contains(refusal([&] { open_data(config, {.context = 16}); }), "context = 16");
  config.text = {folder.write("c.txt", std::string(1000, 'c'))};
  expect_contains(refusal([&] { open_data(config, {.context = 16, .vocab = 100}); }), "vocab = 100 is too small");
}

TEST(Text, OptionsAreCalledWhatTheCallerCallsThem) {
  const Folder folder;
  DataConfig config;
  OpenOptions options;
  options.names = {.context = "--length", .vocab = "--ids", .text = "FILE", .eval = "--other", .holdout = "--share"};
  const auto refused = [&](const SampleShape& shape) { return refusal([&] { open_data(config, shape, options); }); };
  config.text = {folder.path("none")};
  expect_contains(refused({.context = 16}), "FILE: there is no file or folder");
  config.text = {folder.write("a.txt", std::string(24, 'a'))};
  expect_contains(refused({.context = 16}), "with --length = 16; set --share = 0, name --other, or give more data");
  expect_contains(refused({.context = 99}),
                  "one sequence of --length = 99, which needs 100; give more data, or a smaller --length");
  config.text = {folder.write("b.txt", std::string(1000, 'b'))};
  expect_contains(refused({.context = 16, .vocab = 100}), "--ids = 100 is too small");
}

TEST(Text, StandardHeadersAreFound) {
  const Data data = open_data({}, {.context = 128});
  EXPECT_GT(data.train->samples(), 1000);
  EXPECT_GT(data.eval->samples(), 10);
  expect_contains(data.summary, "C++ headers");
  EXPECT_GT(data.unigram_entropy, 2.5);
  EXPECT_LT(data.unigram_entropy, 4.5);
}

TEST(ByteTokenizer, RoundTrips) {
  const ByteTokenizer bytes;
  const std::string text = "h\xc3\xa9llo\n";
  EXPECT_EQ(bytes.decode(bytes.encode(text)), text);
  EXPECT_EQ(bytes.encode("\xff")[0], 255);
}

TEST(SyntheticImages, ClassesCanBeDistinguished) {
  const SyntheticImages images(17, 3, 7, 0, 2000);
  Batch batch;
  images.resize(batch, 2000);
  for (std::int64_t i = 0; i < 2000; ++i) images.read(i, i, batch);
  // The nearest class mean of the first half recognises most of the second half.
  constexpr std::size_t size = 17 * 17 * 3;
  std::vector<double> means(7 * size);
  std::vector<double> counts(7);
  for (std::size_t i = 0; i < 1000; ++i) {
    const auto label = static_cast<std::size_t>(batch.labels[i]);
    ASSERT_LT(label, 7U);
    counts[label] += 1;
    for (std::size_t e = 0; e < size; ++e) means[label * size + e] += batch.images[i * size + e];
  }
  int right = 0;
  for (std::size_t i = 1000; i < 2000; ++i) {
    double best = 1e30;
    std::size_t guess = 0;
    for (std::size_t k = 0; k < 7; ++k) {
      double distance = 0;
      for (std::size_t e = 0; e < size; ++e)
        distance += std::pow(batch.images[i * size + e] - means[k * size + e] / counts[k], 2);
      if (distance < best) {
        best = distance;
        guess = k;
      }
    }
    right += guess == static_cast<std::size_t>(batch.labels[i]) ? 1 : 0;
  }
  EXPECT_GT(right, 700);
  const SyntheticImages later(17, 3, 7, 1000, 2000);
  Batch one;
  later.resize(one, 1);
  later.read(5, 0, one);
  EXPECT_TRUE(std::equal(one.images.begin(), one.images.end(), batch.images.begin() + 1005 * size));
}

}  // namespace
}  // namespace trireme::data
