#include "trireme/compress/decode_cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/folder.h"
#include "trireme/ops/matmul/few_rows.h"
#include "trireme/train/config.h"

namespace trireme::compress {
namespace {

std::vector<DecodeSample> samples_of(const DecodeCost& cost) {
  std::vector<DecodeSample> samples;
  for (const double products : {10.0, 25.0, 50.0})
    for (const double weights : {4e5, 3e6, 2e7})
      for (const double others : {1e4, 4e5}) {
        const DecodeWork work{products, 2 * products + 5, weights, others};
        samples.push_back({work, cost.seconds(work)});
      }
  return samples;
}

TEST(DecodeCost, FindsWhatItWasMadeWith) {
  const DecodeCost truth{3e-6, 4e-7, 5e-11, 2e-10};
  const DecodeCost found = fit_decode_cost(samples_of(truth));
  EXPECT_NEAR(found.product, truth.product, 1e-6 * truth.product);
  EXPECT_NEAR(found.other, truth.other, 1e-6 * truth.other);
  EXPECT_NEAR(found.product_byte, truth.product_byte, 1e-6 * truth.product_byte);
  EXPECT_NEAR(found.other_byte, truth.other_byte, 1e-6 * truth.other_byte);
}

// Large models read their weights from a slower memory: what is near the budget is what counts there.
TEST(DecodeCost, IsRightWhereItIsAskedFor) {
  std::vector<DecodeSample> samples = samples_of({3e-6, 4e-7, 5e-11, 2e-10});
  for (DecodeSample& s : samples)
    if (s.work.product_bytes > 1e7) s.seconds *= 3;
  const DecodeWork small{25, 55, 3e6, 1e4};
  const double seconds = DecodeCost{3e-6, 4e-7, 5e-11, 2e-10}.seconds(small);
  EXPECT_LT(std::abs(fit_decode_cost(samples, seconds).seconds(small) / seconds - 1),
            std::abs(fit_decode_cost(samples).seconds(small) / seconds - 1));
  EXPECT_NEAR(fit_decode_cost(samples, seconds).seconds(small), seconds, 0.1 * seconds);
}

TEST(DecodeCost, NothingIsLessThanZero) {
  std::vector<DecodeSample> samples = samples_of({3e-6, 4e-7, 5e-11, 0});
  for (DecodeSample& s : samples) s.seconds -= 1e-12 * s.work.other_bytes;
  const DecodeCost found = fit_decode_cost(samples);
  EXPECT_GT(found.product, 0);
  EXPECT_GT(found.product_byte, 0);
  EXPECT_EQ(found.other_byte, 0);
  for (const DecodeSample& s : samples) EXPECT_NEAR(found.seconds(s.work), s.seconds, 0.02 * s.seconds);
}

// Two threads share tasks of 64 columns: a product of 192 takes as long as one of 256 would.
TEST(DecodeCost, TheBusiestThreadCounts) {
  EXPECT_EQ(ops::busiest_share(64, 2), 1);
  EXPECT_EQ(ops::busiest_share(128, 2), 0.5);
  EXPECT_DOUBLE_EQ(ops::busiest_share(192, 2), 2.0 / 3);
  EXPECT_EQ(ops::busiest_share(192, 1), 1);
  EXPECT_EQ(ops::busiest_share(100, 8), 0.64);
  const train::Registry registry;
  const auto bytes = [&](std::int64_t neurons, std::int64_t threads) {
    train::Config config = train::parse_config(
        "", "file.toml",
        std::vector<std::string>{"model.layers=1", "model.width=64", "model.heads=2", "model.context=64",
                                 "runtime.device=cpu", fmt::format("model.ffn={}", neurons),
                                 fmt::format("runtime.threads={}", threads)});
    train::resolve_model(config, 256);
    return decode_work(config, registry).product_bytes;
  };
  // 64 neurons more are a task for the thread that had fewer; before, one of the two had to take it in addition.
  EXPECT_LT(bytes(256, 2) - bytes(192, 2), 0.7 * (bytes(192, 2) - bytes(128, 2)));
  EXPECT_DOUBLE_EQ(bytes(256, 1) - bytes(192, 1), bytes(192, 1) - bytes(128, 1));
}

TEST(DecodeCost, OneSampleIsEnough) {
  const std::vector<DecodeSample> samples = {{{50, 100, 1e6, 1e4}, 4e-4}};
  EXPECT_NEAR(fit_decode_cost(samples).seconds(samples[0].work), 4e-4, 1e-10);
}

TEST(DecodeCost, IsKeptToTheBit) {
  const test::Folder folder;
  const DecodeCost cost{1.0 / 3e6, 1.0 / 9e6, 1.0 / 7e10, 0};
  EXPECT_EQ(read_decode_cost(folder.path("decode.json")), std::nullopt);
  write_decode_cost(cost, folder.path("decode.json"));
  EXPECT_EQ(read_decode_cost(folder.path("decode.json")), cost);
}

TEST(DecodeWork, GrowsWithWhatAModelHas) {
  const train::Registry registry;
  train::Config config =
      train::parse_config("", "file.toml",
                          std::vector<std::string>{"model.layers=2", "model.width=32", "model.heads=2",
                                                   "model.context=64", "runtime.device=cpu", "runtime.threads=1"});
  train::resolve_model(config, 64);
  const DecodeWork small = decode_work(config, registry);
  EXPECT_GE(small.products, 2 * 4 + 1);  // of the layers and the head
  EXPECT_GT(small.others, 0);
  // Every weight of a product is read once, and little else by them.
  const double weights = 4.0 * (2 * (12 * 32 * 32 + 9 * 32) + 64 * 32);
  EXPECT_NEAR(small.product_bytes, weights, 0.2 * weights);
  const auto launches = [&](std::int64_t layers) {
    config.model.layers = layers;
    const DecodeWork work = decode_work(config, registry);
    return work.products + work.others;
  };
  EXPECT_EQ(launches(4) - launches(3), launches(3) - launches(2));
  EXPECT_GT(launches(4), launches(3));
}

}  // namespace
}  // namespace trireme::compress
