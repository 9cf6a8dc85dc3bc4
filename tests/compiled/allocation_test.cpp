// A run allocates nothing: every allocation of the process, in whatever library, goes through the functions below.
// Except one: oneDNN keeps the arguments of a call in small containers of its own and gives no way around it. Those are
// counted apart, and none may be large enough to be scratch memory.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

#include "support/planted.h"
#include "trireme/data/loader.h"
#include "trireme/data/synthetic_images.h"
#include "trireme/device/cpu/widened.h"
#include "trireme/train/session.h"

// The sanitizers bring an allocator of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};
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

std::size_t allocations_of_a_step(train::Config c, const std::function<void(train::Compiled&)>& rework = {}) {
  const train::Registry registry;
  train::resolve_model(c, c.model.vocab, registry.models);
  train::Compiled compiled = train::compile(c, registry, {.threads = 2});
  if (rework) rework(compiled);
  train::Session session(compiled, 2);
  session.initialize(1);
  const data::Batch batch = batch_for(c, compiled.roles.front().module.graph("micro").find_input("images").has_value());
  // On a busy machine a worker may get its first piece of work, and with it what libraries keep per thread, only after
  // some steps: the fewest of several are those of a step in the steady state.
  std::size_t fewest = SIZE_MAX;
  for (std::int64_t step = 0; step < 20 && fewest > 0; ++step) {
    allocations = 0;
    counting = true;
    session.step(batch, step, 1e-3, 1);
    counting = false;
    fewest = std::min(fewest, allocations.load());
  }
  // Its kernels for CPUs without AVX-512 allocate their packing buffers (device/cpu/onednn.h).
  if (!device::cpu::widens(DType::bf16)) {
    EXPECT_LE(largest_in_onednn, 2048U);
  }
  return fewest;
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
  const std::size_t found = allocations_of_a_step(small("gpt2"), [&](train::Compiled& compiled) {
    for (program::Program& p : compiled.roles.front().programs)
      for (program::Instruction& i : p.instructions)
        if (p.name == "step" && i.kind == program::Instruction::Kind::launch && !i.outputs.empty() && !faulty)
          faulty = testing::plant(i, [](const device::Launch&, std::size_t) {
            auto* volatile secret = static_cast<char*>(std::malloc(std::size_t{1} << 30));
            *secret = 1;
            std::free(secret);
          });
  });
  EXPECT_GE(found, 1U);
}

constexpr std::size_t kBatchBytes = std::size_t{16} * 8 * 8 * 3 * sizeof(float);

// Bytes of the largest allocation in twenty batches, when the loader has made its first ones. `use` is what the caller
// does with a batch.
std::size_t largest_of_batches(const std::function<void(const data::Batch&)>& use) {
  const auto images = std::make_shared<data::SyntheticImages>(8, 3, 10, 0, 1000);
  data::Loader loader(data::Sampler(images, data::Order::shuffled, 1, 16), {{0, 16}}, 0, {.threads = 2});
  for (int i = 0; i < 20; ++i) loader.next();
  // Nobody takes any for a moment, so that it has read as far ahead as it may and made all of its batches.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  largest = 0;
  counting = true;
  for (int i = 0; i < 20; ++i) use(loader.next());
  counting = false;
  return largest;
}

// Batches are used again: a loader has as many as it reads ahead, and makes no more.
TEST(Allocation, ALoaderMakesNoMoreBatches) {
  EXPECT_LT(largest_of_batches([](const data::Batch&) {}), kBatchBytes / 4);
}

TEST(Allocation, ALoaderThatKeepsBatchesIsFound) {
  std::vector<data::Batch> kept;
  kept.reserve(100);
  EXPECT_GE(largest_of_batches([&](const data::Batch& batch) { kept.push_back(batch); }), kBatchBytes);
}

TEST(Allocation, Gpt2StepAllocatesNothing) {
  train::Config c = small("gpt2");
  c.model.dropout = 0.1;
  EXPECT_EQ(allocations_of_a_step(c), 0U);
  c.train.precision = "bf16";
  EXPECT_EQ(allocations_of_a_step(c), 0U);
}

TEST(Allocation, LlamaStepAllocatesNothing) { EXPECT_EQ(allocations_of_a_step(small("llama")), 0U); }

TEST(Allocation, ResNetStepAllocatesNothing) {
  train::Config c = small("resnet");
  c.model.layers = 18;
  c.model.width = 8;
  c.model.image = 32;
  c.train.optimizer = "sgd";
  EXPECT_EQ(allocations_of_a_step(c), 0U);
}

}  // namespace
}  // namespace trireme::runtime

#endif
