#include "trireme/device/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/device/algorithm_cache.h"
#include "trireme/device/cuda/check.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/cuda/trial.h"

namespace trireme::device::cuda {
namespace {

// It holds nothing but what the library knows of the GPU, and may be used by all threads.
cublasLtHandle_t handle() {
  static const cublasLtHandle_t instance = [] {
    cublasLtHandle_t made = nullptr;
    TRI_CUDA(cublasLtCreate(&made));
    return made;
  }();
  return instance;
}

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  TRI_CUDA(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}

cudaDataType operand_type(const GemmSpec& s, bool e5m2) {
  if (!s.fp8) return type_of(s.input);
  return e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

class Layout {
 public:
  // A row-major matrix is, to the library, its transpose by columns.
  Layout(cudaDataType type, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
    TRI_CUDA(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), ld));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

cublasLtEpilogue_t epilogue_of(const GemmSpec& s) {
  if (s.gelu_gradient) return CUBLASLT_EPILOGUE_DGELU;
  if (s.gelu && s.keep_argument) return s.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (s.gelu) return s.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return s.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

constexpr int kCandidates = 64;

// The library wants its scratch aligned so; workspaces are less.
constexpr std::size_t kScratchAlignment = 256;

void* aligned(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<std::byte*>(workspace) + (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
}

std::size_t scratch_of(const GemmSpec& s) {
  constexpr std::size_t kMax = std::size_t{32} << 20;
  const std::size_t sums = static_cast<std::size_t>(std::max<std::int64_t>(0, s.m * s.n)) * sizeof(float);
  return std::min(kMax, (8 * sums + 65535) / 65536 * 65536);
}

AlgorithmCache& cache() {
  static AlgorithmCache instance([] {
    std::string name = fmt::format("gemm-{}-{}", gpus().front().name, cublasLtGetVersion());
    std::replace(name.begin(), name.end(), ' ', '-');
    return name;
  }());
  return instance;
}

std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format("{:016x}", fmt::join(algorithm.data, "."));
}

// Nothing for a text that is not one of these.
std::optional<cublasLtMatmulAlgo_t> from_text(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  constexpr std::size_t kDigits = 16;
  std::size_t at = 0;
  for (std::uint64_t& word : algorithm.data) {
    const char* const end = text.data() + at + kDigits;
    if (at + kDigits > text.size() || std::from_chars(text.data() + at, end, word, 16).ptr != end) return std::nullopt;
    at += kDigits + 1;
  }
  return at == text.size() + 1 ? std::optional(algorithm) : std::nullopt;
}

constexpr std::size_t kFinalists = 6;
constexpr int kRounds = 5;
constexpr int kRuns = 8;
// Seconds of a trial at the clock that a product's own power leaves.
constexpr double kHeatUp = 0.15;
constexpr double kSettle = 0.02;
constexpr double kSustained = 0.04;
constexpr int kLongRounds = 3;
constexpr std::size_t kFlush = std::size_t{256} << 20;

}  // namespace

struct Gemm::Impl {
  GemmSpec spec;
  cublasLtMatmulDesc_t desc = nullptr;
  Layout a, b, c;
  std::array<std::optional<cublasLtMatmulAlgo_t>, 2> algorithms;  // for operands at multiples of 16 bytes, for others
  std::mutex mutex;

  Impl(const GemmSpec& s, Algorithms* run)
      : spec(s),
        a(operand_type(s, s.a_e5m2), s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda),
        b(operand_type(s, s.b_e5m2), s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb),
        c(type_of(s.output), s.m, s.n, s.ldc) {
    TRI_CUDA(cublasLtMatmulDescCreate(
        &desc, s.tf32 && s.input == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    // cᵀ = bᵀ · aᵀ, so b is the library's first operand.
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s));
    if (s.bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.output));
    if (s.keep_argument || s.gelu_gradient) {
      set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.ldc);
      set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(s.output));
    }
    if (s.fp8) {
      // The library picks its algorithm for scales that it will find in memory.
      set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(s.fast_sums ? 1 : 0));
      set_scales(nullptr, nullptr);
    }
    Algorithms none;
    choose(0, run == nullptr ? &none : run);
  }
  ~Impl() { cublasLtMatmulDescDestroy(desc); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // (b is the library's first operand.)
  void set_scales(const float* of_a, const float* of_b) const {
    set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_b);
    set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_a);
  }

  // For operands at multiples of 16 bytes, when it is made; for others at the first of them, without measuring.
  const cublasLtMatmulAlgo_t& choose(std::size_t which, Algorithms* run = nullptr) {
    const std::lock_guard lock(mutex);
    if (algorithms[which]) return *algorithms[which];
    cublasLtMatmulPreference_t preference = nullptr;
    TRI_CUDA(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      TRI_CUDA(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, scratch_of(spec));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(attribute, static_cast<std::uint32_t>(which == 0 ? 16 : size_of(spec.input)));
    // Sums over k cut in pieces are only taken in an order of their own: the same bits every time. Those that are added
    // to the result in place are so by counters; in 16 bits each addition would round.
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    if (spec.input != DType::f32) reductions &= ~static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(), desc, b.get(), a.get(), c.get(), c.get(),
                                                                 preference, kCandidates, results.data(), &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
      fail("cuBLASLt has no algorithm for {}×{}×{} in {}: {}", spec.m, spec.n, spec.k, name_of(spec.input),
           cublasLtGetStatusString(status));
    const std::span candidates(results.data(), static_cast<std::size_t>(found));
    algorithms[which] = run != nullptr && worth_measuring() ? fastest(candidates, *run) : candidates.front().algo;
    return *algorithms[which];
  }

  // The library's guess is within a few per cent for products that take no time.
  bool worth_measuring() const { return !spec.fp8 && flops() > 5e9; }
  double flops() const {
    return 2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k);
  }
  // A step of such products by the tensor cores draws all the power there is: the GPU lowers its clock, and the
  // algorithm that needs the least energy is the fastest, which short runs at full clock do not tell.
  bool limited_by_power() const { return (spec.input != DType::f32 || spec.tf32) && flops() > 1e11; }

  std::string key() const {
    const GemmSpec& s = spec;
    return fmt::format(
        "{}x{}x{}/{}{}/{},{},{}/{}{}>{}/{}{}{}{}{}", s.m, s.n, s.k, s.trans_a ? 't' : 'n', s.trans_b ? 't' : 'n', s.lda,
        s.ldb, s.ldc, s.tf32 ? "t" : "", name_of(s.input), name_of(s.output),
        s.accumulate ? '+'
        : s.add      ? 'a'
                     : '=',
        s.bias ? 'b' : '-', s.gelu ? 'g' : '-', s.keep_argument ? 'k' : '-', s.gelu_gradient ? 'd' : '-');
  }

  // What was kept, if the library still has it for these sizes.
  std::optional<cublasLtMatmulAlgo_t> kept(Algorithms& run) const {
    const std::optional<std::string> text = run.find(cache(), key());
    std::optional<cublasLtMatmulAlgo_t> algorithm = text ? from_text(*text) : std::nullopt;
    cublasLtMatmulHeuristicResult_t result{};
    if (algorithm && (cublasLtMatmulAlgoCheck(handle(), desc, b.get(), a.get(), c.get(), c.get(), &*algorithm,
                                              &result) != CUBLAS_STATUS_SUCCESS ||
                      result.workspaceSize > scratch_of(spec)))
      algorithm.reset();
    return algorithm;
  }

  // Of those that give the same bits as the first (trial.h).
  cublasLtMatmulAlgo_t fastest(std::span<const cublasLtMatmulHeuristicResult_t> candidates, Algorithms& run) {
    if (const auto known = kept(run)) return *known;
    const auto begin = std::chrono::steady_clock::now();
    std::size_t total = 0;
    const auto take = [&](std::int64_t rows, std::int64_t ld, DType dtype) {
      return std::exchange(total, total + (static_cast<std::size_t>(rows * ld) * size_of(dtype) + 255) / 256 * 256);
    };
    const std::size_t a_at = take(spec.trans_a ? spec.k : spec.m, spec.lda, spec.input);
    const std::size_t b_at = take(spec.trans_b ? spec.n : spec.k, spec.ldb, spec.input);
    const std::size_t bias_at = take(1, spec.ldc, spec.output);
    const std::size_t start_at = take(spec.adds() ? spec.m : 0, spec.ldc, spec.output);
    const std::size_t aux_at = take(spec.m, spec.ldc, spec.output);
    const std::size_t c_at = take(spec.m, spec.ldc, spec.output);
    const std::size_t filled = total;
    const std::size_t c_bytes = filled - c_at;
    const std::size_t first_c_at = take(spec.m, spec.ldc, spec.output);
    const std::size_t first_aux_at = take(spec.keep_argument ? spec.m : 0, spec.ldc, spec.output);
    const std::size_t count_at = take(1, 256, DType::u8);
    const std::size_t workspace_at = take(1, static_cast<std::int64_t>(workspace(spec)), DType::u8);
    if (total + kFlush > free_memory() / 2) return candidates.front().algo;
    const std::unique_ptr<void, void (*)(void*)> memory(allocate(total + kFlush), [](void* p) { release(p); });
    auto* const base = static_cast<std::byte*>(memory.get());
    const Buffers buffers{base + a_at, base + b_at, base + c_at, base + bias_at, base + aux_at, base + workspace_at};
    fill_with_noise(base, filled, spec.input);
    const std::unique_ptr<Streams> streams = make_streams({.timestamps = 2});
    std::vector<SameBits::Result> results = {{base + c_at, base + first_c_at, c_bytes}};
    if (spec.keep_argument) results.push_back({base + aux_at, base + first_aux_at, c_bytes});
    SameBits same_bits(std::move(results), reinterpret_cast<unsigned long long*>(base + count_at));
    const auto gives_same_bits = [&](const cublasLtMatmulAlgo_t& algorithm) {
      if (spec.adds()) streams->copy(base + c_at, base + start_at, c_bytes);
      launch(streams->native(), buffers, algorithm);
      return same_bits.check(*streams);
    };
    // In a step, what a product reads was written long before: other memory has been through the cache since.
    const auto time = [&](const cublasLtMatmulAlgo_t& algorithm, int runs) {
      streams->copy(base + total, base + total + kFlush / 2, kFlush / 2);
      streams->timestamp(0);
      for (int i = 0; i < runs; ++i) launch(streams->native(), buffers, algorithm);
      streams->timestamp(1);
      streams->synchronize();
      return streams->seconds(0, 1);
    };
    struct Timed {
      cublasLtMatmulAlgo_t algorithm;
      std::vector<double> seconds;
      double median() const {
        std::vector<double> sorted = seconds;
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
      }
    };
    std::vector<Timed> timed;
    for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
      try {
        if (gives_same_bits(candidate.algo)) timed.push_back({candidate.algo, {}});
      } catch (const Error&) {
        continue;  // one that the library offers and then refuses
      }
    }
    if (timed.empty()) return candidates.front().algo;
    // All in turn, round by round: the clock changes meanwhile.
    const auto take_turns = [&](int rounds, auto&& seconds) {
      for (Timed& t : timed) t.seconds.clear();
      for (int round = 0; round < rounds; ++round)
        for (Timed& t : timed) t.seconds.push_back(seconds(t.algorithm));
      std::stable_sort(timed.begin(), timed.end(),
                       [](const Timed& x, const Timed& y) { return x.median() < y.median(); });
    };
    take_turns(kRounds, [&](const auto& algorithm) { return time(algorithm, 1); });
    timed.resize(std::min(timed.size(), kFinalists));
    const double once = timed.front().median();
    if (limited_by_power()) {
      // One behind the other, as a step has them, for so long that its own power sets the clock.
      const auto runs = [&](double span) { return std::max(1, static_cast<int>(span / once)); };
      time(timed.front().algorithm, runs(kHeatUp));
      take_turns(kLongRounds, [&](const auto& algorithm) {
        time(algorithm, runs(kSettle));
        return time(algorithm, runs(kSustained));
      });
    } else {
      take_turns(kRounds, [&](const auto& algorithm) { return time(algorithm, kRuns); });
    }
    const cublasLtMatmulAlgo_t best = timed.front().algorithm;
    run.keep(cache(), key(), to_text(best));
    run.note_measured(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return best;
  }

  struct Buffers {
    const void* a;
    const void* b;
    void* c;
    const void* bias;
    void* aux;
    void* workspace;
  };

  void launch(void* stream, const Buffers& m, const cublasLtMatmulAlgo_t& algorithm) const {
    if (spec.bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, m.bias);
    if (spec.keep_argument || spec.gelu_gradient) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, m.aux);
    const float one = 1;
    const float beta = spec.adds() ? 1.0F : 0.0F;
    TRI_CUDA(cublasLtMatmul(handle(), desc, &one, m.b, b.get(), m.a, a.get(), &beta, m.c, c.get(), m.c, c.get(),
                            &algorithm, aligned(m.workspace), scratch_of(spec), static_cast<cudaStream_t>(stream)));
  }
};

std::size_t Gemm::workspace(const GemmSpec& s) { return scratch_of(s) + kScratchAlignment; }

bool Gemm::has_gelu(const GemmSpec& s) {
  return size_of(s.input) == 2 && s.output == s.input && s.n % 8 == 0 && s.ldc % 8 == 0 && s.k % 8 == 0 &&
         !s.accumulate;
}

Gemm::Gemm(const GemmSpec& spec, Algorithms* run) : impl_(std::make_unique<Impl>(spec, run)) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

void Gemm::run(void* stream, const void* a, const void* b, void* c, void* workspace, const void* bias,
               void* aux) const {
  Impl& i = *impl_;
  const auto is_even = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool even = is_even(a) && is_even(b) && is_even(c);
  // The library's results differ in their bits when it reads one matrix and writes another.
  if (i.spec.add && aux != c)
    TRI_CUDA(cudaMemcpyAsync(c, aux, static_cast<std::size_t>(i.spec.m * i.spec.ldc) * size_of(i.spec.output),
                             cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)));
  const cublasLtMatmulAlgo_t& algorithm = i.choose(even ? 0 : 1);
  i.launch(stream, {a, b, c, bias, aux, workspace}, algorithm);
}

void Gemm::run_fp8(void* stream, const void* a, const void* b, const float* a_scale, const float* b_scale, void* c,
                   void* workspace) const {
  Impl& i = *impl_;
  i.set_scales(a_scale, b_scale);
  i.launch(stream, {a, b, c, nullptr, nullptr, workspace}, i.choose(0));
}

}  // namespace trireme::device::cuda
