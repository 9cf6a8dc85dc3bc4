#pragma once
#include <cstdint>

#include "trireme/ir/builder.h"

namespace trireme::models {

// The usual layers, each with its parameters in the scope it is given. Plain mathematics.

struct LinearOptions {
  bool bias = true;
  double deviation = 0.02;  // of the weight's start values
};

// x [..., in] → [..., out dims]; weight [out dims, in].
ir::Value linear(const ir::Builder& b, const ir::Value& x, const Shape& out, const LinearOptions& options = {});
// Contracts the last two dimensions of x [..., h, d] with weight [out, h, d].
ir::Value linear_heads(const ir::Builder& b, const ir::Value& x, std::int64_t out, const LinearOptions& options = {});

// tokens i32 [...] → [..., width]; weight [vocab, width].
ir::Value embedding(const ir::Builder& b, const ir::Value& tokens, std::int64_t vocab, std::int64_t width,
                    double deviation = 0.02);

ir::Value layer_norm(const ir::Builder& b, const ir::Value& x, double eps = 1e-5);
ir::Value rms_norm(const ir::Builder& b, const ir::Value& x, double eps = 1e-5);
// x [n, h, w, c]; keeps running statistics.
ir::Value batch_norm(const ir::Builder& b, const ir::Value& x, double momentum = 0.1, double eps = 1e-5);

// For each of tokens i32 [rows, positions], where its document begins, if `end` is the token that ends one; nothing if
// it is negative.
ir::Value document_starts(const ir::Value& tokens, std::int64_t end);
// Causal attention of q, k and v, or of a q that holds all three; with `starts` no position sees another document.
ir::Value attend(const ir::Value& q, const ir::Value& k, const ir::Value& v, const ir::Value& starts);

// A no-op outside training or with p = 0.
ir::Value dropout(const ir::Builder& b, const ir::Value& x, double p);

ir::Value add(const ir::Value& a, const ir::Value& b);
ir::Value relu(const ir::Value& x);
ir::Value gelu(const ir::Value& x);       // exact
ir::Value gelu_tanh(const ir::Value& x);  // tanh approximation
ir::Value silu(const ir::Value& x);
ir::Value reshape(const ir::Value& x, const Shape& shape);

struct ConvOptions {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 1;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};
// x [n, h, w, c] → [n, h', w', out], no bias; weight [out, kernel, kernel, c / groups].
ir::Value conv(const ir::Builder& b, const ir::Value& x, std::int64_t out, const ConvOptions& options = {});

// Mean over the global batch of -log p(target). `x` [..., width] times `weight` [vocab, width] are the logits, which
// are never formed as a whole. Without targets: the logits.
ir::Value linear_cross_entropy(const ir::Builder& b, const ir::Value& x, const ir::Value& weight,
                               const ir::Value& targets);
// The same from logits [..., classes].
ir::Value cross_entropy(const ir::Builder& b, const ir::Value& logits, const ir::Value& targets);
// Mean over the global batch and all features of (x - target)², of |x - target|. Without a target: x.
ir::Value squared_error(const ir::Builder& b, const ir::Value& x, const ir::Value& target);
ir::Value mean_absolute_error(const ir::Builder& b, const ir::Value& x, const ir::Value& target);
// The mean of x [rows, …] over the global batch.
ir::Value batch_mean(const ir::Builder& b, const ir::Value& x);

}  // namespace trireme::models
