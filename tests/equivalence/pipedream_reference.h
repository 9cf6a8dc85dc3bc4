#pragma once
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "equivalence/training.h"

namespace trireme::testing {

// Asynchronous pipelines as their rules say, one micro-batch after another on one rank. A stage's weights after n
// updates are its version n.
//
//   pipedream       Every micro-batch has an update. Stage i is c micro-batches ahead of its backwards: of the n-th
//                   since the pipeline was empty it reads version n − c (or the first), forwards and backwards.
//   pipedream-2bw   Every step has an update. Step s since the pipeline was empty reads version s − 1 (or the first).
class PipedreamReference {
 public:
  // `config` is that of the pipeline. `ahead`: by how many micro-batches each stage is, where a schedule of one's own
  // with an update for every micro-batch says so; otherwise as pipedream has it.
  explicit PipedreamReference(const train::Config& config, std::vector<std::int64_t> ahead = {});

  // `steps` more, from an empty pipeline to an empty one.
  void train(std::int64_t steps);

  const std::vector<double>& losses() const { return losses_; }
  // Of all stages' gradients at the last update.
  double grad_norm() const { return grad_norm_; }
  const std::map<std::string, std::vector<float>>& weights() const { return weights_; }
  std::map<std::string, std::vector<float>>& weights() { return weights_; }
  // From now on updates leave of these weights, and of their moments, what is multiplied by 1, and not by 0.
  void keep(const std::map<std::string, std::vector<float>>& masks) { masks_ = masks; }
  // Running statistics and whatever else is saved that no optimizer updates.
  std::map<std::string, std::vector<float>> statistics() const;

 private:
  using Tensors = std::map<std::string, std::vector<float>>;
  struct Stage {
    std::vector<std::string> parameters;
    std::vector<Tensors> versions;  // since the pipeline was empty
  };

  // The loss of some rows under these weights, and its gradients.
  double differentiate(const Tensors& weights, std::int64_t step, std::int64_t first_row, std::int64_t rows,
                       Tensors& gradients);
  void mask(const std::string& name, std::size_t element, std::initializer_list<float*> all) const;
  // AdamW or SGD on a stage's newest version, its gradients clipped by their own norm.
  void update(Stage& stage, const Tensors& gradients, std::int64_t step, std::int64_t number);

  train::Config config_;
  bool each_ = true;  // micro-batch has its update
  std::vector<std::int64_t> ahead_;
  int micro_batches_ = 1;
  std::int64_t micro_rows_ = 1;
  std::unique_ptr<Trained> plain_;
  std::vector<Stage> stages_;
  std::map<std::string, bool> decayed_;
  Tensors weights_;
  Tensors first_moments_;
  Tensors second_moments_;
  Tensors masks_;
  std::vector<double> losses_;
  double grad_norm_ = 0;
};

}  // namespace trireme::testing
