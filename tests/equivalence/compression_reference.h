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

// batch_of, with the first rank's rows for every rank: then the batch's statistics are those of each rank's rows.
data::Batch same_rows(const train::Config& config, int ranks, std::int64_t step);

// The largest error over all weights, relative to each tensor's norm.
double weight_error(Trained& run, const Tensors& weights);

}  // namespace trireme::testing
