// A run allocates nothing, whatever its steps do (support/allocations.h counts). Each op's kernels are counted apart
// (support/guarded.h).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocations.h"
#include "support/planted.h"
#include "support/source_dir.h"
#include "trireme/data/loader.h"
#include "trireme/data/synthetic_images.h"
#include "trireme/train/session.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace trireme::runtime {
namespace {

bool takes_images(const train::Compiled& compiled) {
  return compiled.roles.front().module.graph("micro").find_input("images").has_value();
}

data::Batch batch_for(const train::Config& c, bool images) {
  data::Batch batch;
  batch.rows = c.train.batch;
  const auto rows = static_cast<std::size_t>(batch.rows);
  if (images) {
    batch.images.assign(rows * static_cast<std::size_t>(c.model.image * c.model.image * c.model.channels), 0.5F);
    batch.labels.assign(rows, 1);
  } else {
    batch.tokens.assign(rows * static_cast<std::size_t>(c.model.context), 1);
    batch.targets.assign(rows * static_cast<std::size_t>(c.model.context), 2);
  }
  return batch;
}

// What is counted is run twenty times. What that may allocate is stated per thread of compute, of each rank:
//  - the first run prepares what libraries keep for a thread, and what grows to its size once;
//  - on a busy machine a thread may get its first piece of work only later: so may a few of the following runs;
//  - the others allocate nothing.
constexpr std::int64_t kCounted = 20;
constexpr std::size_t kFirstRun = std::size_t{4} << 10;
constexpr std::size_t kThreads = 2;

struct Counted {
  std::size_t first_bytes = 0;    // of the first run
  std::vector<std::size_t> each;  // allocations of each run
  std::size_t later_bytes = 0;    // of all but the first
  std::size_t largest_later = 0;  // allocation of those
  std::size_t offloaded = 0;      // bytes of the plan that wait elsewhere
  std::size_t steady() const { return *std::min_element(each.begin() + 1, each.end()); }
  std::ptrdiff_t allocating() const {  // of the later runs
    return std::count_if(each.begin() + 1, each.end(), [](std::size_t n) { return n > 0; });
  }
};

Counted count_runs(const std::function<void(std::int64_t)>& run) {
  Counted result;
  for (std::int64_t i = 0; i < kCounted; ++i) {
    const testing::Allocations made = testing::allocations_of([&] { run(i); });
    EXPECT_LE(made.largest_in_onednn, testing::most_for_onednn());
    result.each.push_back(made.calls);
    (i == 0 ? result.first_bytes : result.later_bytes) += made.bytes;
    if (i > 0) result.largest_later = std::max(result.largest_later, made.largest);
  }
  fmt::print("first: {} allocations, {} bytes; then {} ({} bytes)\n", result.each.front(), result.first_bytes,
             fmt::join(std::span(result.each).subspan(1), " "), result.later_bytes);
  return result;
}

void expect_nothing(const Counted& counted, std::size_t ranks = 1) {
  EXPECT_LE(counted.first_bytes, ranks * kThreads * kFirstRun);
  EXPECT_LE(counted.later_bytes, ranks * kThreads * kFirstRun);
  EXPECT_LE(counted.allocating(), static_cast<std::ptrdiff_t>(ranks * kThreads));
  EXPECT_EQ(counted.steady(), 0U);
}

train::Compiled compiled_for(train::Config c, const train::CompileOptions& options = {.threads = kThreads}) {
  static const train::Registry registry;
  train::resolve_model(c, c.model.vocab, registry.models);
  return train::compile(c, registry, options);
}

Counted allocations_of_steps(const train::Config& c, const std::function<void(train::Compiled&)>& rework = {}) {
  train::Compiled compiled = compiled_for(c);
  if (rework) rework(compiled);
  train::Session session(compiled, kThreads);
  session.initialize(1);
  const data::Batch batch = batch_for(c, takes_images(compiled));
  Counted counted = count_runs([&](std::int64_t step) { session.step(batch, step, 1e-3, 1); });
  counted.offloaded = compiled.tier_bytes(program::kDiskTier);
  return counted;
}

Counted expect_nothing_allocated(const train::Config& c, std::size_t ranks = 1) {
  const Counted counted = allocations_of_steps(c);
  expect_nothing(counted, ranks);
  return counted;
}

train::Config small(const char* family) {
  train::Config c;
  c.model.family = family;
  c.model.layers = 2;
  c.model.width = 32;
  c.model.heads = 4;
  c.model.context = 16;
  c.model.vocab = 67;
  c.train.batch = 4;
  c.train.micro_batch = 2;
  return c;
}

TEST(Allocation, TheCounterWorks) {
  std::vector<int> some;
  const testing::Allocations counted = testing::allocations_of([&] { some.resize(100); });
  EXPECT_EQ(some.size(), 100U);
  EXPECT_EQ(counted.calls, 1U);
  EXPECT_EQ(counted.bytes, 100 * sizeof(int));
}

// A fault that is planted: one kernel of the step takes a gibibyte behind the plan's back, and gives it back.
TEST(Allocation, AKernelThatAllocatesIsFound) {
  std::shared_ptr<const ir::OpDef> faulty;
  const Counted found = allocations_of_steps(small("gpt2"), [&](train::Compiled& compiled) {
    for (program::Program& p : compiled.roles.front().programs)
      for (program::Instruction& i : p.instructions)
        if (p.name == "step" && i.kind == program::Instruction::Kind::launch && !i.outputs.empty() && !faulty)
          faulty = testing::plant(i, [](const device::Launch&, std::size_t) {
            auto* volatile secret = static_cast<char*>(std::malloc(std::size_t{1} << 30));
            *secret = 1;
            std::free(secret);
          });
  });
  EXPECT_GE(found.steady(), 1U);
  EXPECT_GE(found.first_bytes, std::size_t{1} << 30);
}

constexpr std::size_t kBatchBytes = std::size_t{16} * 8 * 8 * 3 * sizeof(float);

std::shared_ptr<const data::Dataset> some_images() {
  return std::make_shared<data::SyntheticImages>(8, 3, 10, 0, 1000);
}

// Bytes of the largest allocation in twenty batches, when the loader has made its first ones.
std::size_t largest_of_batches(const std::shared_ptr<const data::Dataset>& images) {
  data::Loader loader(data::Sampler(images, data::Order::shuffled, 1, 16), {{0, 16}}, 0, {.threads = 2});
  for (int i = 0; i < 20; ++i) loader.next();
  // Nobody takes any for a moment, so that it has read as far ahead as it may and made all of its batches.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return testing::allocations_of([&] {
           for (int i = 0; i < 20; ++i) loader.next();
         })
      .largest;
}

// Batches are used again: a loader has as many as it reads ahead, and makes no more.
TEST(Allocation, ALoaderMakesNoMoreBatches) { EXPECT_LT(largest_of_batches(some_images()), kBatchBytes / 4); }

// Keeps the memory of every batch that a loader brings back to be filled again, so that the loader needs new memory.
class KeepsBatches final : public data::Dataset {
 public:
  std::int64_t samples() const override { return images_->samples(); }
  std::int64_t tokens_per_sample() const override { return images_->tokens_per_sample(); }
  void resize(data::Batch& batch, std::int64_t rows) const override {
    kept_.emplace_back().swap(batch.images);
    images_->resize(batch, rows);
  }
  void read(std::int64_t sample, std::int64_t row, data::Batch& batch) const override {
    images_->read(sample, row, batch);
  }

 private:
  std::shared_ptr<const data::Dataset> images_ = some_images();
  mutable std::deque<std::pmr::vector<float>> kept_;  // by the loader's thread alone
};

TEST(Allocation, ALoaderThatKeepsBatchesIsFound) {
  EXPECT_GE(largest_of_batches(std::make_shared<KeepsBatches>()), kBatchBytes);
}

// One kernel of the first step alone allocates a mebibyte: within a few steps nobody would see it.
TEST(Allocation, AFirstStepThatAllocatesIsFound) {
  std::shared_ptr<const ir::OpDef> faulty;
  bool first = true;
  const Counted found = allocations_of_steps(small("gpt2"), [&](train::Compiled& compiled) {
    for (program::Program& p : compiled.roles.front().programs)
      for (program::Instruction& i : p.instructions)
        if (p.name == "step" && i.kind == program::Instruction::Kind::launch && !i.outputs.empty() && !faulty)
          faulty = testing::plant(i, [&first](const device::Launch&, std::size_t) {
            if (!std::exchange(first, false)) return;
            auto* volatile secret = static_cast<char*>(std::malloc(std::size_t{1} << 20));
            *secret = 1;
            std::free(secret);
          });
  });
  EXPECT_GT(found.first_bytes, kThreads * kFirstRun);
  EXPECT_EQ(found.steady(), 0U);
}

TEST(Allocation, Gpt2StepAllocatesNothing) {
  train::Config c = small("gpt2");
  c.model.dropout = 0.1;
  expect_nothing_allocated(c);
  c.train.precision = "bf16";
  expect_nothing_allocated(c);
}

TEST(Allocation, LlamaStepAllocatesNothing) { expect_nothing_allocated(small("llama")); }

TEST(Allocation, ResNetStepAllocatesNothing) {
  train::Config c = small("resnet");
  c.model.layers = 18;
  c.model.width = 8;
  c.model.image = 32;
  c.train.optimizer = "sgd";
  expect_nothing_allocated(c);
}

TEST(Allocation, StepsOfSeveralRanksAllocateNothing) {
  for (const auto& [mesh, ranks] : {std::pair("dp=2", 2U), {"tp=2", 2U}, {"pp=2,dp=2", 4U}})
    for (const int zero : {0, 3}) {
      if (zero > 0 && std::string(mesh) == "tp=2") continue;
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      train::Config c = small("gpt2");
      c.parallel.mesh = mesh;
      c.parallel.zero = zero;
      c.train.micro_batch = std::string(mesh) == "tp=2" ? 2 : 1;
      expect_nothing_allocated(c, ranks);
    }
}

TEST(Allocation, StepsThatOffloadAllocateNothing) {
  for (const char* offload : {"activations", "optimizer", "all"}) {
    SCOPED_TRACE(offload);
    train::Config c = small("gpt2");
    c.model.width = 128;
    c.model.context = 64;
    c.memory.offload = offload;
    c.memory.offload_policy = "all";
    EXPECT_GT(expect_nothing_allocated(c).offloaded, 0U);
  }
}

// Networks on images, which have kernels of their own.
TEST(Allocation, StepsOnImagesAllocateNothing) {
  for (const char* family : {"mlp", "convnet"}) {
    SCOPED_TRACE(family);
    train::Config c = small(family);
    c.model.width = 16;
    c.model.image = 16;
    expect_nothing_allocated(c);
  }
}

TEST(Allocation, StepsThatCompressGradientsAllocateNothing) {
  for (const auto& [by, optimizer] : {std::pair("bf16", "adamw"),
                                      {"int8", "adamw"},
                                      {"onebit", "sgd"},
                                      {"onebit", "adamw"},
                                      {"topk:0.1", "sgd"},
                                      {"powersgd:2", "adamw"}}) {
    SCOPED_TRACE(fmt::format("{} {}", by, optimizer));
    train::Config c = small("gpt2");
    c.parallel.mesh = "dp=2";
    c.parallel.compress = by;
    c.train.optimizer = optimizer;
    const bool warms_up =
        c.parallel.compress == train::Compress::onebit || c.parallel.compress == train::Compress::topk;
    if (warms_up) c.parallel.compress_warmup = 1;
    train::check(c);
    c.train.micro_batch = 1;
    expect_nothing_allocated(c, 2);
  }
}

// What servers are asked and answer is kept in small containers; what is pushed and pulled lies in the plan.
TEST(Allocation, StepsWithServersAllocateNoTensors) {
  train::Config c = small("gpt2");
  c.parallel.mesh = "dp=2";
  c.parallel.server = "sync";
  c.train.micro_batch = 1;
  c.model.width = 128;  // tensors of 64 KiB
  constexpr std::size_t kMessage = 1024;
  EXPECT_LE(allocations_of_steps(c).largest_later, kMessage);
}

TEST(Allocation, StepsThatPruneAllocateNothing) {
  for (const char* method : {"magnitude", "random"}) {
    SCOPED_TRACE(method);
    train::Config c = small("gpt2");
    c.prune.method = method;
    c.prune.schedule = "gradual";
    c.prune.begin = 1;
    c.prune.end = 8;
    c.prune.every = 2;
    expect_nothing_allocated(c);
  }
}

TEST(Allocation, StepsThatDistilAllocateNothing) {
  train::Config c = small("gpt2");
  c.distil.teacher = source_dir() + "/tests/reference/distil_teacher";
  c.distil.hidden = 0.3;
  expect_nothing_allocated(c);
}

TEST(Allocation, EvaluationAllocatesNothing) {
  for (const char* family : {"gpt2", "llama", "resnet"}) {
    SCOPED_TRACE(family);
    train::Config c = small(family);
    c.train.batch = 2;
    if (c.model.family == "resnet") {
      c.model.layers = 18;
      c.model.width = 8;
      c.model.image = 32;
    }
    const train::Compiled compiled = compiled_for(c);
    train::Session session(compiled, kThreads);
    session.initialize(1);
    const data::Batch batch = batch_for(c, takes_images(compiled));
    expect_nothing(count_runs([&](std::int64_t) { session.evaluate(batch); }));
    if (takes_images(compiled)) continue;
    const std::span<const std::int32_t> row = std::span(batch.tokens).first(static_cast<std::size_t>(c.model.context));
    expect_nothing(count_runs([&](std::int64_t) { session.predict(row); }));
  }
}

TEST(Allocation, GenerationAllocatesNothing) {
  const std::vector<std::int32_t> prompt(24, 1);
  for (const char* family : {"gpt2", "llama"})
    for (const char* cache : {"full", "int8"}) {
      SCOPED_TRACE(fmt::format("{} {}", family, cache));
      train::Config c = small(family);
      c.model.context = 64;
      c.train.batch = c.train.micro_batch = 1;
      c.memory.kv_cache = cache;
      const train::Compiled compiled =
          compiled_for(c, {.threads = kThreads, .purpose = train::Purpose::generate, .sequence = 60});
      train::Session session(compiled, kThreads);
      session.initialize(1);
      expect_nothing(count_runs([&](std::int64_t i) {
        session.decode(prompt, 0);
        session.decode(std::span(prompt).first(1), 24 + i);
      }));
    }
}

}  // namespace
}  // namespace trireme::runtime

#endif
