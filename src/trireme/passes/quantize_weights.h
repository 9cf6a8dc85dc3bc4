#pragma once
#include <set>
#include <string>
#include <vector>

#include "trireme/ops/quantize/codes.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Weights of linear layers and embeddings stored as codes of few bits with scales, in graphs that are not trained. The
// parameter's state is replaced by two, so plan and checkpoint have the bytes of the codes:
//
//   %y = matmul(%x, @w, @b) {trans_b}      →      %y = quantized_linear(%x, @w/codes, @w/scale, @b) {bits=8, out=[8]}
//   %e = embedding(%tokens, @t)            →      %e = quantized_embedding(%tokens, @t/codes, @t/scale)
//   %l = linear_cross_entropy(%x, @t, …)   →      %d = dequantize_rows(@t/codes, @t/scale)
//                                                 %l = linear_cross_entropy(%x, %d, …)
//
// A parameter that anything else reads stays as it is. Tables (what an embedding or the output layer reads) have 8 bits
// per row unless a rule names them; other weights have `format`. Before precision, which then finds nothing to copy.
class QuantizeWeights : public Pass {
 public:
  struct Rule {
    std::string pattern;  // of names, where * stands for any text
    ops::CodeFormat format;
    bool none = false;  // left as it is
    friend bool operator==(const Rule&, const Rule&) = default;
  };
  struct Options {
    ops::CodeFormat format;
    std::vector<Rule> rules = {};  // the last that matches decides
    std::vector<std::string> graphs = {};
    DType to = DType::f32;                                                 // what embeddings make
    std::string key = "memory.weights", rules_key = "memory.weight_bits";  // for messages
  };
  explicit QuantizeWeights(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "quantize-weights"; }
  // Refuses weights that cannot have their format, and rules that match none.
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// A weight that the pass would replace: a matrix of n rows of k elements, in the order of the parameter's own.
struct QuantizedWeight {
  std::string name;  // of the parameter
  TensorType type;   // of the parameter
  std::int64_t n = 0, k = 0;
  bool table = false;  // an embedding's or the output layer's
  ops::CodeFormat format;

  std::string codes() const { return name + "/codes"; }
  std::string scale() const { return name + "/scale"; }
};
// In the order of the module's states. Refuses as the pass does.
std::vector<QuantizedWeight> quantized_weights(const ir::Module& module, const QuantizeWeights::Options& options);

// The values that are the output "logits" but for their type; none without such an output.
std::set<ir::ValueId> logits_of(const ir::Graph& graph);

}  // namespace trireme::passes
