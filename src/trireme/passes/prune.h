#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// Trains with elements of some parameters at zero. Each such parameter gets a state `w/mask`, of ones at first, by
// which the update multiplies the new parameter and its optimizer states:
//
//   %w, %m, %v = adamw(@w, @w/grad, @w/m, @w/v, …)   →   %w, %m, %v = adamw(@w, @w/grad, @w/m, @w/v, …, @w/mask)
//
// so that what is pruned is zero after every step. Masks are made anew by a graph of its own, `prune`, which some steps
// run before their update (state_graphs.h):
//
//   %count = add(@prune/count, 1);  %fraction = ramp(%count) {to=sparsity}
//   %mask = keep_largest(@w, @w/mask, %fraction);  write set @w/mask = %mask, @prune/count = %count
//
// Slices of several parameters are ranked by the sum of what each has of them (add_n), which is taken over stages
// and ranks beyond the mesh where they have some of the parameters; what becomes of it is small, and everywhere.
//
// What was pruned once stays so. With `rewind` the weights of an early step are kept as `w/rewind` (graph `remember`)
// and come back after each pruning, without what the mask leaves out (graph `rewind`).
//
// Comes after Optimizer, whose update it extends, and before everything that shards: the ops' own rules then gather
// what must be ranked as a whole.
class Prune : public Pass {
 public:
  // What is ranked: |w|; how far the updates push w from zero, −w·m summed over the prunings, m being the optimizer's
  // mean of the gradients; or numbers drawn once.
  enum class Score { magnitude, movement, random };
  // A dimension of a parameter that goes with those of others: slice i of it are the elements [i·repeat, (i+1)·repeat).
  struct Member {
    std::string parameter;
    int dim = 0;
    std::int64_t repeat = 1;
    friend bool operator==(const Member&, const Member&) = default;
  };
  // Slices that are kept or pruned together: heads, neurons, channels.
  struct Group {
    std::vector<Member> members;
    std::int64_t slices = 0;
    friend bool operator==(const Group&, const Group&) = default;
  };
  struct Options {
    Score score = Score::magnitude;
    double sparsity = 0.5;
    std::string ramp = "cubic";
    std::int64_t prunings = 1;            // after which the sparsity is reached
    std::vector<std::string> parameters;  // ranked element by element, each for itself
    std::vector<Group> groups;            // ranked slice by slice, each for itself
    std::int64_t keep = 0;                // of > 0: of each `of` consecutive elements so many are kept
    std::int64_t of = 0;
    bool rewind = false;
    // For the loop: the steps, counted from 0, that prune; and the one after which the weights are remembered.
    std::vector<std::int64_t> steps;
    std::int64_t remembered = 0;
  };
  explicit Prune(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "prune"; }
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

std::string mask_name(const std::string& parameter);
// The parameter whose mask a state is; nothing: it is none.
std::optional<std::string> masked_parameter(const std::string& state);

}  // namespace trireme::passes
