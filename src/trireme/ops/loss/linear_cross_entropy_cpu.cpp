#include <array>
#include <bit>
#include <limits>
#include <optional>

#include "trireme/device/cpu/onednn.h"
#include "trireme/ops/loss/linear_cross_entropy.h"
#include "trireme/ops/loss/loss_cpu.h"
#include "trireme/ops/loss/sharded_cross_entropy.h"

namespace trireme::ops {
namespace {

using device::cpu::Gemm;
using device::cpu::GemmSpec;

std::int64_t pieces(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }
std::int64_t round_up(std::int64_t n, std::int64_t unit) { return pieces(n, unit) * unit; }

// How the work is cut, from the sizes alone. A chunk of rows is cut into row blocks and the vocabulary into vocabulary
// blocks; a tile is one of each. The logits of a tile are stored transposed, [vocabulary][row]: then the weight, the
// only large operand, is never the one that gemm has to repack for few rows, and each row's softmax runs down a vector
// lane.
struct Plan {
  std::int64_t rows, vocab, dim;
  std::int64_t row_block, chunk_blocks;  // a chunk has `chunk_blocks` row blocks
  std::int64_t vocab_block, vocab_blocks;
  std::int64_t sums;  // dx of a row block is summed in so many parts of the vocabulary
  DType gemm_type;    // f16 is brought to f32
  bool widen, gradients;
  bool narrow_dweight;  // dweight is rounded from its f32 sums, which exist in pieces: see dweight_block

  // Byte offsets into the workspace.
  std::size_t loss_at, logits_at, maximum_at, sum_at, target_at, lse_at, weight_at, dx_at, x_at, rest_at, workers_at;
  std::size_t worker_tile = 0, worker_wide = 0, worker_sum = 0, worker_bytes = 0, bytes = 0;

  Plan(const ir::KernelSpec& spec, bool with_gradients)
      : rows(spec.inputs[2].elements()),
        vocab(spec.inputs[1].shape[0]),
        dim(spec.inputs[1].shape[1]),
        widen(spec.inputs[0].dtype == DType::f16),
        gradients(with_gradients),
        narrow_dweight(gradients && spec.outputs[2].dtype != DType::f32) {
    gemm_type = widen ? DType::f32 : spec.inputs[0].dtype;
    constexpr std::int64_t kRowBlock = 128, kLogits = 4 << 20;
    std::int64_t chunk = spec.attributes.integer("chunk");
    if (chunk == 0) chunk = std::clamp<std::int64_t>(kLogits / vocab, kRowBlock, 16 * kRowBlock);
    chunk = std::max<std::int64_t>(1, std::min(chunk, rows));
    row_block = std::min(kRowBlock, chunk);
    chunk_blocks = chunk / row_block;
    vocab_block = std::min(vocab, std::clamp<std::int64_t>(round_up(pieces(vocab, 16), 64), 64, 512));
    vocab_blocks = pieces(vocab, vocab_block);
    sums = std::clamp<std::int64_t>(16 / chunk_blocks, 1, vocab_blocks);

    const std::int64_t chunk_rows = chunk_blocks * row_block;
    loss_at = take(static_cast<std::size_t>(pieces(rows, row_block)) * sizeof(double));
    logits_at = take(gradients ? floats(chunk_rows * vocab) : 0);
    maximum_at = take(floats(chunk_rows * vocab_blocks));
    sum_at = take(floats(chunk_rows * vocab_blocks));
    target_at = take(floats(chunk_rows));
    lse_at = take(floats(chunk_rows));
    weight_at = take(floats(chunk_rows));
    dx_at = take(gradients ? floats(chunk_rows * sums * dim) : 0);
    x_at = take(widen ? floats(chunk_rows * dim) : 0);
    rest_at = take(narrow_dweight && chunk_rows < rows ? static_cast<std::size_t>(vocab * dim) * 2 : 0);
    std::size_t scratch = 0;
    for_shapes([&](std::int64_t r, std::int64_t v, std::size_t) {
      for (const GemmSpec& g : {logits_gemm(r, v), dx_gemm(r, v), dweight_gemm(r, v)})
        scratch = std::max(scratch, Gemm::scratch_bytes(g));
    });
    worker_tile = gradients ? 0 : aligned(floats(row_block * vocab_block));
    worker_wide = widen ? aligned(floats(vocab_block * dim)) : 0;
    worker_sum = narrow_dweight ? aligned(floats(vocab_block * dim)) : 0;
    worker_bytes = worker_tile + worker_wide + worker_sum + aligned(scratch);
    workers_at = take(worker_bytes * static_cast<std::size_t>(spec.threads));
  }

  GemmSpec logits_gemm(std::int64_t r, std::int64_t v) const {
    return {.m = v, .n = r, .k = dim, .trans_b = true, .lda = dim, .ldb = dim, .ldc = r, .input = gemm_type};
  }
  GemmSpec dx_gemm(std::int64_t r, std::int64_t v) const {
    return {.m = r,
            .n = dim,
            .k = v,
            .trans_a = true,
            .lda = r,
            .ldb = dim,
            .ldc = dim,
            .input = gemm_type,
            .accumulate = true};
  }
  GemmSpec dweight_gemm(std::int64_t r, std::int64_t v) const {
    return {.m = v, .n = dim, .k = r, .lda = r, .ldb = dim, .ldc = dim, .input = gemm_type, .accumulate = true};
  }

  std::int64_t rows_of(std::int64_t block) const { return std::min(row_block, rows - block * row_block); }
  std::int64_t vocab_of(std::int64_t block) const { return std::min(vocab_block, vocab - block * vocab_block); }
  std::size_t shape(std::int64_t r, std::int64_t v) const {
    return (r != row_block ? 1U : 0U) | (v != vocab_block ? 2U : 0U);
  }

  // Calls f(rows, vocabulary, shape) for the tiles that occur: whole ones and those at the two edges.
  template <class F>
  void for_shapes(F&& f) const {
    const std::int64_t last_rows = rows_of(pieces(rows, row_block) - 1), last_vocab = vocab_of(vocab_blocks - 1);
    std::array<bool, 4> seen{};
    for (const std::int64_t r : {rows >= row_block ? row_block : last_rows, last_rows})
      for (const std::int64_t v : {vocab_block, last_vocab})
        if (!std::exchange(seen[shape(r, v)], true)) f(r, v, shape(r, v));
  }

 private:
  static std::size_t aligned(std::size_t n) { return (n + 63) / 64 * 64; }
  static std::size_t floats(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); }
  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += aligned(size);
    return at;
  }
};

// The largest logit of each row of a tile, and Σ exp(logit − largest).
void tile_softmax(const float* tile, std::int64_t rows, std::int64_t vocab, float* maximum, float* sum) {
  simd::for_vectors(rows, [&](std::int64_t r, std::int64_t n) {
    simd::Vec top = simd::load_n(tile + r, n), total = simd::zero();
    for (std::int64_t v = 1; v < vocab; ++v) top = simd::hn::Max(top, simd::load_n(tile + v * rows + r, n));
    for (std::int64_t v = 0; v < vocab; ++v) total = total + simd::exp(simd::load_n(tile + v * rows + r, n) - top);
    simd::store_n(top, maximum + r, n);
    simd::store_n(total, sum + r, n);
  });
}

// The gradient of a tile's logits from the logits, in the type gemm reads and in their place. An element is never wider
// than the logit it comes from, so walking upwards overwrites only what has been read.
template <class P>
void tile_gradient(float* tile, std::int64_t rows, std::int64_t vocab, const float* lse, const float* weight) {
  P* out = reinterpret_cast<P*>(tile);
  for (std::int64_t v = 0; v < vocab; ++v)
    simd::for_vectors(rows, [&](std::int64_t r, std::int64_t n) {
      const simd::Vec p = simd::exp(simd::load_n(tile + v * rows + r, n) - simd::load_n(lse + r, n));
      simd::store_n(p * simd::load_n(weight + r, n), out + v * rows + r, n);
    });
}

// An f32 in two arrays of 16 bits: what is above the point where bf16 ends, and the rest.
void cut(const float* x, std::int64_t n, std::uint16_t* high, std::uint16_t* rest) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    high[i] = static_cast<std::uint16_t>(bits >> 16);
    rest[i] = static_cast<std::uint16_t>(bits);
  }
}
void join(const std::uint16_t* high, const std::uint16_t* rest, std::int64_t n, float* x) {
  for (std::int64_t i = 0; i < n; ++i)
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(high[i]) << 16 | static_cast<std::uint32_t>(rest[i]));
}

// What a launch does: all of the op, or one half of it where other ranks have the rest of the vocabulary
// (sharded_cross_entropy.h).
enum class Mode { all, lse, given };

Plan plan_of(const ir::KernelSpec& spec, Mode mode) {
  return {spec, mode != Mode::lse && spec.attributes.boolean("with_gradients")};
}

// T is the operands' type, G the one gemm reads.
template <class T, class G>
class LinearCrossEntropyKernel : public device::Kernel {
 public:
  LinearCrossEntropyKernel(const ir::KernelSpec& spec, Mode mode)
      : mode_(mode),
        plan_(plan_of(spec, mode)),
        scale_(mode == Mode::lse ? 1.0 : spec.attributes.real("scale")),
        words_(mode == Mode::all ? plan_.vocab : spec.attributes.integer("vocab")) {
    plan_.for_shapes([&](std::int64_t r, std::int64_t v, std::size_t shape) {
      logits_[shape].emplace(plan_.logits_gemm(r, v), spec.threads);
      if (!plan_.gradients) return;
      dx_[shape].emplace(plan_.dx_gemm(r, v), spec.threads);
      dweight_[shape].emplace(plan_.dweight_gemm(r, v), spec.threads);
    });
  }

  void launch(const device::Launch& launch) override {
    const Plan& p = plan_;
    if (p.gradients && !p.narrow_dweight) {
      float* dweight = launch.out<float>(2);
      launch.pool->ranges(p.vocab * p.dim, 16 * simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        std::fill(dweight + begin, dweight + end, 0.0F);
      });
    }
    const std::int64_t blocks = pieces(p.rows, p.row_block);
    for (std::int64_t first = 0; first < blocks; first += p.chunk_blocks) {
      const Chunk c(launch, p, mode_, scale_, first, std::min(p.chunk_blocks, blocks - first));
      if (mode_ != Mode::given || p.gradients) {
        widen_rows(c);
        launch.pool->run_with_worker(c.blocks * p.vocab_blocks, [&](std::int64_t task, int worker) {
          logits_tile(c, task / p.vocab_blocks, task % p.vocab_blocks, worker);
        });
      }
      launch.pool->run(c.blocks, [&](std::int64_t block) { block_loss(c, block); });
      if (!p.gradients) continue;
      launch.pool->run_with_worker(
          c.blocks * p.sums, [&](std::int64_t task, int worker) { dx_part(c, task / p.sums, task % p.sums, worker); });
      launch.pool->run_with_worker(p.vocab_blocks, [&](std::int64_t j, int worker) { dweight_block(c, j, worker); });
      launch.pool->run(c.blocks, [&](std::int64_t block) { block_dx(c, block); });
    }
    if (mode_ == Mode::lse) return;
    const auto* loss = reinterpret_cast<const double*>(static_cast<std::byte*>(launch.workspace) + p.loss_at);
    double total = 0;
    for (std::int64_t block = 0; block < blocks; ++block) total += loss[block];
    *launch.out<float>(0) = static_cast<float>(scale_ * total);
  }

 private:
  // The chunk at work: the row blocks [first, first + blocks), numbered from 0 within it.
  struct Chunk {
    const device::Launch& launch;
    const Plan& plan;
    std::int64_t first, blocks;
    std::byte* workspace;
    double* loss;
    float *logits, *maximum, *sum, *target, *lse, *weight, *dx, *wide_x;
    float row_weight;             // of a row that counts, in the gradients
    std::int64_t first_word = 0;  // of the weight's rows

    Chunk(const device::Launch& l, const Plan& p, Mode mode, double scale, std::int64_t first_block, std::int64_t count)
        : launch(l), plan(p), first(first_block), blocks(count), workspace(static_cast<std::byte*>(l.workspace)) {
      const std::size_t at_dloss = mode == Mode::given ? 6 : 3;
      const double dloss = mode != Mode::lse && l.inputs[at_dloss] != nullptr ? *l.in<float>(at_dloss) : 1.0;
      if (mode != Mode::all) first_word = *l.in<std::int64_t>(3) * p.vocab;
      row_weight = static_cast<float>(scale * dloss);
      const auto at = [&](std::size_t offset) { return reinterpret_cast<float*>(workspace + offset); };
      loss = reinterpret_cast<double*>(workspace + p.loss_at) + first;
      logits = at(p.logits_at), maximum = at(p.maximum_at), sum = at(p.sum_at), target = at(p.target_at);
      lse = at(p.lse_at), weight = at(p.weight_at), dx = at(p.dx_at), wide_x = at(p.x_at);
    }
    bool is_last() const { return first + blocks == pieces(plan.rows, plan.row_block); }

    std::int64_t row(std::int64_t i) const { return (first + i) * plan.row_block; }
    std::int64_t rows_of(std::int64_t i) const { return plan.rows_of(first + i); }
    const std::int32_t* targets(std::int64_t i) const { return launch.in<std::int32_t>(2) + row(i); }
    float* tile(std::int64_t i, std::int64_t j) const {
      return logits + (i * plan.vocab + j * plan.vocab_block) * plan.row_block;
    }
    const T* narrow_x(std::int64_t i) const { return launch.in<T>(0) + row(i) * plan.dim; }
    T* dx_rows(std::int64_t i) const { return launch.out<T>(1) + row(i) * plan.dim; }
    float* dweight(std::int64_t j) const { return launch.out<float>(2) + j * plan.vocab_block * plan.dim; }
    // Rows of block i as gemm reads them.
    const G* x(std::int64_t i) const {
      if constexpr (std::is_same_v<T, G>)
        return narrow_x(i);
      else
        return wide_x + i * plan.row_block * plan.dim;
    }
    std::byte* worker(int w) const {
      return workspace + plan.workers_at + plan.worker_bytes * static_cast<std::size_t>(w);
    }
    float* own_tile(int w) const { return reinterpret_cast<float*>(worker(w)); }
    float* own_sum(int w) const { return reinterpret_cast<float*>(worker(w) + plan.worker_tile + plan.worker_wide); }
    void* scratch(int w) const { return worker(w) + plan.worker_tile + plan.worker_wide + plan.worker_sum; }
    // Rows of the weight that belong to vocabulary block j, as gemm reads them.
    const G* weights(std::int64_t j, int w) const {
      const T* rows = launch.in<T>(1) + j * plan.vocab_block * plan.dim;
      if constexpr (std::is_same_v<T, G>) {
        return rows;
      } else {
        G* wide = reinterpret_cast<G*>(worker(w) + plan.worker_tile);
        simd::map(
            plan.vocab_of(j) * plan.dim, wide, [](simd::Vec v) { return v; }, rows);
        return wide;
      }
    }
  };

  void widen_rows(const Chunk& c) const {
    if constexpr (!std::is_same_v<T, G>)
      c.launch.pool->run(c.blocks, [&](std::int64_t i) {
        simd::map(
            c.rows_of(i) * plan_.dim, c.wide_x + i * plan_.row_block * plan_.dim, [](simd::Vec v) { return v; },
            c.narrow_x(i));
      });
  }

  // Of a vocabulary block's rows, those that are words: the others are padding.
  std::int64_t words_of(const Chunk& c, std::int64_t j) const {
    return std::clamp<std::int64_t>(words_ - c.first_word - j * plan_.vocab_block, 0, plan_.vocab_of(j));
  }

  void logits_tile(const Chunk& c, std::int64_t i, std::int64_t j, int worker) const {
    const std::int64_t rows = c.rows_of(i), vocab = plan_.vocab_of(j), begin = c.first_word + j * plan_.vocab_block;
    const std::int64_t words = words_of(c, j);
    float* tile = plan_.gradients ? c.tile(i, j) : c.own_tile(worker);
    logits_[plan_.shape(rows, vocab)]->run(worker, c.weights(j, worker), c.x(i), tile, c.scratch(worker));
    if (mode_ == Mode::given) return;
    const std::int64_t at = (i * plan_.vocab_blocks + j) * plan_.row_block;
    if (words > 0) {
      tile_softmax(tile, rows, words, c.maximum + at, c.sum + at);
    } else {
      std::fill_n(c.maximum + at, rows, -std::numeric_limits<float>::infinity());
      std::fill_n(c.sum + at, rows, 0.0F);
    }
    const std::int32_t* targets = c.targets(i);
    for (std::int64_t r = 0; r < rows; ++r)
      if (targets[r] >= begin && targets[r] < begin + words)
        c.target[i * plan_.row_block + r] = tile[(targets[r] - begin) * rows + r];
  }

  // With what all ranks' logits give.
  void given_loss(const Chunk& c, std::int64_t i) const {
    double total = 0;
    const float* lse = c.launch.template in<float>(4) + c.row(i);
    const float* target = c.launch.template in<float>(5) + c.row(i);
    for (std::int64_t r = 0; r < c.rows_of(i); ++r) {
      const bool counted = counts(c.targets(i)[r], words_, c.row(i) + r);
      const std::int64_t at = i * plan_.row_block + r;
      c.lse[at] = lse[r];
      c.target[at] = target[r];
      c.weight[at] = counted ? c.row_weight : 0.0F;
      if (counted) total += static_cast<double>(lse[r]) - static_cast<double>(target[r]);
    }
    c.loss[i] = total;
  }

  bool is_here(const Chunk& c, std::int32_t target) const {
    return target >= c.first_word && target < c.first_word + plan_.vocab;
  }

  // Joins the tiles of each row.
  void block_loss(const Chunk& c, std::int64_t i) const {
    if (mode_ == Mode::given) return given_loss(c, i);
    double total = 0;
    for (std::int64_t r = 0; r < c.rows_of(i); ++r) {
      const float* maximum = c.maximum + i * plan_.vocab_blocks * plan_.row_block + r;
      const float* sum = c.sum + i * plan_.vocab_blocks * plan_.row_block + r;
      float top = *maximum;
      for (std::int64_t j = 1; j < plan_.vocab_blocks; ++j) top = std::max(top, maximum[j * plan_.row_block]);
      if (mode_ == Mode::lse && std::isinf(top) && top < 0) {  // padding alone
        c.launch.template out<float>(0)[c.row(i) + r] = top;
        c.launch.template out<float>(1)[c.row(i) + r] = 0;
        continue;
      }
      double joined = 0;
      for (std::int64_t j = 0; j < plan_.vocab_blocks; ++j)
        joined += static_cast<double>(sum[j * plan_.row_block]) *
                  std::exp(static_cast<double>(maximum[j * plan_.row_block]) - static_cast<double>(top));
      const double lse = static_cast<double>(top) + std::log(joined);
      const bool counted = counts(c.targets(i)[r], words_, c.row(i) + r);
      const std::int64_t at = i * plan_.row_block + r;
      if (mode_ == Mode::lse) {
        c.launch.template out<float>(0)[c.row(i) + r] = static_cast<float>(lse);
        c.launch.template out<float>(1)[c.row(i) + r] = is_here(c, c.targets(i)[r]) ? c.target[at] : 0.0F;
        continue;
      }
      c.lse[at] = static_cast<float>(lse);
      c.weight[at] = counted ? c.row_weight : 0.0F;
      if (counted) total += lse - static_cast<double>(c.target[at]);
    }
    c.loss[i] = total;
  }

  // Turns the tiles of row block i in one part of the vocabulary into gradients and adds up their share of dx.
  void dx_part(const Chunk& c, std::int64_t i, std::int64_t part, int worker) const {
    const std::int64_t rows = c.rows_of(i), at = i * plan_.row_block;
    float* dx = c.dx + (i * plan_.sums + part) * plan_.row_block * plan_.dim;
    std::fill_n(dx, rows * plan_.dim, 0.0F);
    for (std::int64_t j = plan_.vocab_blocks * part / plan_.sums; j < plan_.vocab_blocks * (part + 1) / plan_.sums;
         ++j) {
      const std::int64_t vocab = plan_.vocab_of(j), begin = c.first_word + j * plan_.vocab_block;
      const std::int64_t words = words_of(c, j);
      tile_gradient<G>(c.tile(i, j), rows, words, c.lse + at, c.weight + at);
      G* tile = reinterpret_cast<G*>(c.tile(i, j));
      std::fill(tile + words * rows, tile + vocab * rows, G(0.0F));
      const std::int32_t* targets = c.targets(i);
      for (std::int64_t r = 0; r < rows; ++r)
        if (targets[r] >= begin && targets[r] < begin + words)
          tile[(targets[r] - begin) * rows + r] =
              G(c.weight[at + r] * (std::exp(c.target[at + r] - c.lse[at + r]) - 1.0F));
      dx_[plan_.shape(rows, vocab)]->run(worker, tile, c.weights(j, worker), dx, c.scratch(worker));
    }
  }

  void block_dx(const Chunk& c, std::int64_t i) const {
    const std::int64_t n = c.rows_of(i) * plan_.dim, stride = plan_.row_block * plan_.dim;
    const float* parts = c.dx + i * plan_.sums * stride;
    T* dx = c.dx_rows(i);
    simd::for_vectors(n, [&](std::int64_t e, std::int64_t count) {
      simd::Vec sum = simd::load_n(parts + e, count);
      for (std::int64_t part = 1; part < plan_.sums; ++part) sum = sum + simd::load_n(parts + part * stride + e, count);
      simd::store_n(sum, dx + e, count);
    });
  }

  void dweight_block(const Chunk& c, std::int64_t j, int worker) const {
    if constexpr (!std::is_same_v<T, float>)
      if (plan_.narrow_dweight) return narrow_dweight_block(c, j, worker);
    add_dweight(c, j, worker, c.dweight(j));
  }

  // Between chunks the f32 sums are cut in two: the output, which is 16 bits wide, keeps one half, the workspace the
  // other. So they take no more room than an f32 output would.
  void narrow_dweight_block(const Chunk& c, std::int64_t j, int worker) const {
    const std::int64_t at = j * plan_.vocab_block * plan_.dim, n = plan_.vocab_of(j) * plan_.dim;
    T* out = c.launch.template out<T>(2) + at;
    auto* high = reinterpret_cast<std::uint16_t*>(out);
    auto* rest = reinterpret_cast<std::uint16_t*>(c.workspace + plan_.rest_at) + at;
    float* sum = c.own_sum(worker);
    if (c.first == 0)
      std::fill_n(sum, n, 0.0F);
    else
      join(high, rest, n, sum);
    add_dweight(c, j, worker, sum);
    if (!c.is_last()) return cut(sum, n, high, rest);
    simd::map(
        n, out, [](simd::Vec v) { return v; }, static_cast<const float*>(sum));
  }

  void add_dweight(const Chunk& c, std::int64_t j, int worker, float* sum) const {
    for (std::int64_t i = 0; i < c.blocks; ++i)
      dweight_[plan_.shape(c.rows_of(i), plan_.vocab_of(j))]->run(worker, c.tile(i, j), c.x(i), sum, c.scratch(worker));
  }

  Mode mode_;
  Plan plan_;
  double scale_;
  std::int64_t words_;  // of the vocabulary, those of other ranks included
  std::array<std::optional<Gemm>, 4> logits_, dx_, dweight_;
};

std::shared_ptr<device::Kernel> prepare(const ir::KernelSpec& spec, Mode mode) {
  switch (spec.inputs[0].dtype) {
    case DType::bf16: return std::make_shared<LinearCrossEntropyKernel<BFloat16, BFloat16>>(spec, mode);
    case DType::f16: return std::make_shared<LinearCrossEntropyKernel<Float16, float>>(spec, mode);
    default: return std::make_shared<LinearCrossEntropyKernel<float, float>>(spec, mode);
  }
}

}  // namespace

std::size_t linear_cross_entropy_workspace_cpu(const ir::KernelSpec& spec) { return plan_of(spec, Mode::all).bytes; }

std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_cpu(const ir::KernelSpec& spec) {
  return prepare(spec, Mode::all);
}

std::size_t linear_lse_workspace_cpu(const ir::KernelSpec& spec) { return plan_of(spec, Mode::lse).bytes; }

std::shared_ptr<device::Kernel> prepare_linear_lse_cpu(const ir::KernelSpec& spec) { return prepare(spec, Mode::lse); }

std::size_t linear_cross_entropy_given_workspace_cpu(const ir::KernelSpec& spec) {
  return plan_of(spec, Mode::given).bytes;
}

std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_given_cpu(const ir::KernelSpec& spec) {
  return prepare(spec, Mode::given);
}

}  // namespace trireme::ops
