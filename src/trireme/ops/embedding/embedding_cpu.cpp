#include <cstring>

#include "trireme/ops/define.h"
#include "trireme/ops/embedding/embedding.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

// The positions of each token: those of token t are order[first[t]] … order[first[t+1] - 1], ascending.
struct TokenOrder {
  std::int32_t* first;
  std::int32_t* order;

  TokenOrder(void* workspace, std::int64_t vocab)
      : first(static_cast<std::int32_t*>(workspace)), order(first + vocab + 1) {}
  static std::size_t bytes(std::int64_t vocab, std::int64_t tokens) {
    return static_cast<std::size_t>(vocab + 1 + tokens) * sizeof(std::int32_t);
  }

  // A counting sort; `first` runs one step ahead while positions are dealt out and ends up in place.
  void sort(const std::int32_t* tokens, std::int64_t count, std::int64_t vocab, bool masked) const {
    std::fill_n(first, vocab + 1, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      if (masked && tokens[i] < 0) continue;
      check_token(tokens[i], vocab, i);
      if (tokens[i] + 2 <= vocab) ++first[tokens[i] + 2];
    }
    for (std::int64_t t = 2; t <= vocab; ++t) first[t] += first[t - 1];
    for (std::int64_t i = 0; i < count; ++i)
      if (tokens[i] >= 0) order[first[tokens[i] + 1]++] = static_cast<std::int32_t>(i);
  }
};

// A task sums kRows rows of the result over kColumns columns.
constexpr std::int64_t kRows = 16;
constexpr std::int64_t kColumns = 256;
constexpr int kVectors = 4;

template <class In, class Out>
class EmbeddingGradKernel : public device::Kernel {
 public:
  EmbeddingGradKernel(std::int64_t tokens, std::int64_t vocab, std::int64_t width, bool accumulate, bool masked)
      : tokens_(tokens), vocab_(vocab), width_(width), accumulate_(accumulate), masked_(masked) {}

  void launch(const device::Launch& launch) override {
    const TokenOrder positions(launch.workspace, vocab_);
    positions.sort(launch.in<std::int32_t>(0), tokens_, vocab_, masked_);
    const In* dy = launch.in<In>(1);
    Out* table = launch.out<Out>(0);
    const std::int64_t column_blocks = (width_ + kColumns - 1) / kColumns;
    launch.pool->run((vocab_ + kRows - 1) / kRows * column_blocks, [&](std::int64_t task) {
      const std::int64_t first = task / column_blocks * kRows, column = task % column_blocks * kColumns;
      for (std::int64_t row = first; row < std::min(first + kRows, vocab_); ++row)
        sum_row(positions, row, dy, table + row * width_, column, std::min(column + kColumns, width_));
    });
  }

 private:
  void sum_row(const TokenOrder& positions, std::int64_t row, const In* dy, Out* out, std::int64_t begin,
               std::int64_t end) const {
    const std::int32_t* from = positions.order + positions.first[row];
    const std::int32_t* to = positions.order + positions.first[row + 1];
    if (from == to) {
      if (!accumulate_)
        std::memset(static_cast<void*>(out + begin), 0, static_cast<std::size_t>(end - begin) * sizeof(Out));
      return;
    }
    std::int64_t c = begin;
    for (; c + kVectors * simd::kLanes <= end; c += kVectors * simd::kLanes) {
      simd::Vec sum[kVectors];
      for (int v = 0; v < kVectors; ++v) sum[v] = accumulate_ ? simd::load(out + c + v * simd::kLanes) : simd::zero();
      for (const std::int32_t* p = from; p < to; ++p)
        for (int v = 0; v < kVectors; ++v) sum[v] = sum[v] + simd::load(dy + *p * width_ + c + v * simd::kLanes);
      for (int v = 0; v < kVectors; ++v) simd::store(sum[v], out + c + v * simd::kLanes);
    }
    simd::for_vectors(end - c, [&](std::int64_t i, std::int64_t n) {
      simd::Vec sum = accumulate_ ? simd::load_n(out + c + i, n) : simd::zero();
      for (const std::int32_t* p = from; p < to; ++p) sum = sum + simd::load_n(dy + *p * width_ + c + i, n);
      simd::store_n(sum, out + c + i, n);
    });
  }

  std::int64_t tokens_, vocab_, width_;
  bool accumulate_;
  bool masked_;
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_embedding_cpu(const ir::KernelSpec& spec) {
  const std::int64_t tokens = spec.inputs[0].elements(), vocab = spec.inputs[1].shape[0];
  const std::size_t row = static_cast<std::size_t>(spec.inputs[1].shape[1]) * size_of(spec.inputs[1].dtype);
  return make_kernel([=, masked = spec.attributes.boolean("masked")](const device::Launch& launch) {
    const auto* token = launch.in<std::int32_t>(0);
    const auto* table = launch.in<std::byte>(1);
    auto* out = launch.out<std::byte>(0);
    const auto block = static_cast<std::int64_t>(std::max<std::size_t>(1, 32768 / std::max<std::size_t>(1, row)));
    launch.pool->ranges(tokens, block, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (masked && token[i] < 0) {
          std::memset(out + static_cast<std::size_t>(i) * row, 0, row);
          continue;
        }
        check_token(token[i], vocab, i);
        std::memcpy(out + static_cast<std::size_t>(i) * row, table + static_cast<std::size_t>(token[i]) * row, row);
      }
    });
  });
}

std::size_t embedding_grad_workspace_cpu(const ir::KernelSpec& spec) {
  return TokenOrder::bytes(spec.outputs[0].shape[0], spec.inputs[0].elements());
}

std::shared_ptr<device::Kernel> prepare_embedding_grad_cpu(const ir::KernelSpec& spec) {
  const std::int64_t tokens = spec.inputs[0].elements();
  const std::int64_t vocab = spec.outputs[0].shape[0], width = spec.outputs[0].shape[1];
  return dispatch_compute(spec.inputs[1].dtype, [&](auto in) {
    return dispatch_compute(spec.outputs[0].dtype, [&](auto out) -> std::shared_ptr<device::Kernel> {
      return std::make_shared<EmbeddingGradKernel<decltype(in), decltype(out)>>(tokens, vocab, width, spec.accumulate,
                                                                                spec.attributes.boolean("masked"));
    });
  });
}

}  // namespace trireme::ops
