#pragma once
#include <map>
#include <string>
#include <vector>

#include "equivalence/training.h"

namespace trireme::testing {

using Tensors = std::map<std::string, std::vector<float>>;

// Plain data-parallel training with the gradients of each replica at hand, for references of what several ranks do to
// them: one after another, on the host.
class Replicas {
 public:
  // `config` is that of the run with several ranks. `same`: all of them get the rows of the first (same_rows).
  Replicas(const train::Config& config, int ranks, bool same = false);

  // Every replica's term of the gradient of this step: sums of them are the batch's gradient.
  std::vector<Tensors> gradients(std::int64_t step);
  Tensors& weights() { return weights_; }
  double loss() const { return loss_; }  // of the last gradients

  // The optimizers, as train.* says: `g` is the gradient, or, of `apply`, what is subtracted times the learning rate.
  void sgd(Tensors g, std::int64_t step);
  void apply(const Tensors& direction, std::int64_t step);
  // Scales to train.clip, over all tensors.
  static void clip(Tensors& g, double max_norm);

 private:
  train::Config config_;
  int ranks_;
  bool same_rows_;
  std::unique_ptr<Trained> probe_;
  std::map<std::string, bool> decayed_;
  Tensors weights_;
  Tensors momentum_;
  double loss_ = 0;
};

// A run whose gradients are compressed in this way.
train::Config compressed(const std::string& model, int ranks, const std::string& kind);
// The same with servers in the place of an all-reduce: what workers push is compressed, and weights come back.
train::Config with_servers(train::Config config);

// Tensors with fewer elements travel as they are.
inline constexpr std::size_t kSmallTensor = 256;

// Sums gradients in chunks, packed twice, with error feedback or without; one way alone, each term is packed as a
// whole, and the sum is not.
class InChunks {
 public:
  InChunks(std::string kind, int ranks, bool feedback, bool one_way = false);

  // How near to 0, in scales, an element came whose sign was sent.
  float closest() const { return closest_; }
  Tensors sum(const std::vector<Tensors>& terms);

 private:
  bool packed(const std::vector<float>& a) const { return kind_ != "none" && a.size() >= kSmallTensor; }
  std::vector<float> sent(std::vector<float> a, std::vector<float>& residual, int parts);

  std::string kind_;
  int ranks_;
  bool feedback_;
  bool one_way_;
  std::vector<Tensors> residual_;
  Tensors residual_of_sum_;
  float closest_ = 1;
};

// batch_of, with the first rank's rows for every rank: then the batch's statistics are those of each rank's rows.
data::Batch same_rows(const train::Config& config, int ranks, std::int64_t step);

// The largest error over all weights, relative to each tensor's norm.
double weight_error(Trained& run, const Tensors& weights);

}  // namespace trireme::testing
