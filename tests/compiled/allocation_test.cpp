// A run allocates nothing: every allocation of the process, in whatever library, goes through the functions below.
// Except one: oneDNN keeps the arguments of a call in small containers of its own and gives no way around it. Those are
// counted apart, and none may be large enough to be scratch memory.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/planted.h"
#include "trireme/data/loader.h"
#include "trireme/data/synthetic_images.h"
#include "trireme/train/session.h"

// The sanitizers bring an allocator of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> allocated{0};  // bytes
std::atomic<std::size_t> largest{0};
std::atomic<std::size_t> largest_in_onednn{0};

void note(std::atomic<std::size_t>& most, std::size_t bytes) {
  std::size_t seen = most.load(std::memory_order_relaxed);
  while (seen < bytes && !most.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

void count(std::size_t bytes, const void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  Dl_info info{};
  const bool onednn =
      dladdr(caller, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr;
  if (!onednn) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    allocated.fetch_add(bytes, std::memory_order_relaxed);
    note(largest, bytes);
    return;
  }
  note(largest_in_onednn, bytes);
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t n, std::size_t bytes);            // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* old, std::size_t bytes);               // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* memory);                                   // NOLINT(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) noexcept {
  count(n * bytes, __builtin_return_address(0));
  return __libc_calloc(n, bytes);
}
void* realloc(void* old, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}

// In addition to malloc, so that the caller is known.
void* operator new(std::size_t bytes) {
  count(bytes, __builtin_return_address(0));
  void* memory = __libc_malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  count(bytes, __builtin_return_address(0));
  void* memory = __libc_memalign(static_cast<std::size_t>(alignment), bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::size_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { __libc_free(memory); }

namespace trireme::runtime {
namespace {

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

// Steps that are counted. What they may allocate is stated per thread of compute, of each rank:
//  - the first step prepares what libraries keep for a thread, and what grows to its size once;
//  - on a busy machine a thread may get its first piece of work only later: so may a few of the following steps;
//  - the others allocate nothing.
constexpr std::int64_t kCounted = 20;
constexpr std::size_t kFirstStep = std::size_t{4} << 10;
constexpr std::size_t kThreads = 2;

struct Counted {
  std::size_t first_bytes = 0;    // of the first step
  std::vector<std::size_t> each;  // allocations of each step
  std::size_t later_bytes = 0;    // of all but the first
  std::size_t offloaded = 0;      // bytes of the plan that wait elsewhere
  std::size_t steady() const { return *std::min_element(each.begin() + 1, each.end()); }
  std::ptrdiff_t allocating() const {  // of the later steps
    return std::count_if(each.begin() + 1, each.end(), [](std::size_t n) { return n > 0; });
  }
};

Counted allocations_of_steps(train::Config c, const std::function<void(train::Compiled&)>& rework = {}) {
  const train::Registry registry;
  train::resolve_model(c, c.model.vocab, registry.models);
  train::Compiled compiled = train::compile(c, registry, {.threads = kThreads});
  if (rework) rework(compiled);
  train::Session session(compiled, kThreads);
  session.initialize(1);
  const data::Batch batch = batch_for(c, compiled.roles.front().module.graph("micro").find_input("images").has_value());
  Counted result;
  result.each.reserve(kCounted);
  result.offloaded = compiled.tier_bytes(program::kDiskTier);
  for (std::int64_t step = 0; step < kCounted; ++step) {
    allocations = 0;
    allocated = 0;
    counting = true;
    session.step(batch, step, 1e-3, 1);
    counting = false;
    result.each.push_back(allocations);
    (step == 0 ? result.first_bytes : result.later_bytes) += allocated;
  }
  // Its kernels for CPUs without AVX-512 allocate their packing buffers (device/cpu/onednn.h).
  if (__builtin_cpu_supports("avx512bw") != 0) {
    EXPECT_LE(largest_in_onednn, 2048U);
  }
  fmt::print("first step: {} allocations, {} bytes; then {} ({} bytes)\n", result.each.front(), result.first_bytes,
             fmt::join(std::span(result.each).subspan(1), " "), result.later_bytes);
  return result;
}

Counted expect_nothing_allocated(const train::Config& c, std::size_t ranks = 1) {
  const Counted counted = allocations_of_steps(c);
  EXPECT_LE(counted.first_bytes, ranks * kThreads * kFirstStep);
  EXPECT_LE(counted.later_bytes, ranks * kThreads * kFirstStep);
  EXPECT_LE(counted.allocating(), static_cast<std::ptrdiff_t>(ranks * kThreads));
  EXPECT_EQ(counted.steady(), 0U);
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
  allocations = 0;
  counting = true;
  std::vector<int> some(100);
  counting = false;
  EXPECT_GE(allocations, 1U);
  EXPECT_EQ(some.size(), 100U);
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
  largest = 0;
  counting = true;
  for (int i = 0; i < 20; ++i) loader.next();
  counting = false;
  return largest;
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
  EXPECT_GT(found.first_bytes, kThreads * kFirstStep);
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

}  // namespace
}  // namespace trireme::runtime

#endif
