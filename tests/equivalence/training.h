#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/train/session.h"

namespace trireme::testing {

// Small models of every family, by name: gpt2, llama, mlp, convnet, resnet18, resnet50. AdamW's eps is 1e-4: where the
// exact gradient is zero it would otherwise turn rounding noise into full steps.
train::Config small_model(const std::string& name);
const std::vector<std::string>& small_models();
// Larger ones, of which something is worth moving elsewhere; the embedding is large enough to be updated in pieces.
train::Config wider_model(const std::string& name);
bool reads_images(const train::Config& config);

// Rows of one update's batch, a pure function of configuration and step: sequences and images that can be learned.
data::Batch batch_of(const train::Config& config, std::int64_t step);

// Small messages that do not wait would hide deadlocks: over an emulated link every send waits, however fast it is.
inline constexpr const char* kWaitingSends = "1000GB/s";

struct Setup {
  int threads = 1;
  std::vector<std::string> disabled_passes = {};
  std::function<void(train::Compiled&)> rework = {};  // of what was compiled, before it runs
  std::function<data::Batch(const train::Config&, std::int64_t step)> batch = {};  // in the place of batch_of
  train::Registry registry = {};
  std::string link = {};                // emulated; between the stages of a pipeline kWaitingSends, unless one is named
  comm::Communicator* world = nullptr;  // of which this process is a rank; null: ranks are threads
};

// `config` with its batch cut over so many ranks.
train::Config over_ranks(train::Config config, int ranks, int zero = 0);

// `config` on a mesh: "dp=2,tp=2".
train::Config over_mesh(train::Config config, const std::string& mesh, int zero = 0);

// A model compiled and initialised, with what it is made of kept alive.
class Trained {
 public:
  explicit Trained(const train::Config& config, const Setup& setup = {});

  // `steps` more updates at the schedule's learning rate; all must be finite.
  void train(std::int64_t steps);
  // The next update is that of `step`: the state was set from a checkpoint.
  void skip_to(std::int64_t step) { losses_.assign(static_cast<std::size_t>(step), 0); }
  // One update, finite or not.
  train::StepResult step();

  const train::Compiled& compiled() const { return compiled_; }
  // Of the ranks that take rows.
  const train::Role& role() const { return compiled_.roles.front(); }
  train::Session& session() { return *session_; }
  const std::vector<double>& losses() const { return losses_; }
  // Every saved state variable: weights, optimizer, statistics.
  std::map<std::string, std::vector<float>> state();

 private:
  void run(std::int64_t steps);

  train::Config config_;
  std::function<data::Batch(const train::Config&, std::int64_t step)> batch_;
  train::Registry registry_;
  train::Compiled compiled_;
  std::unique_ptr<train::Session> session_;
  std::vector<double> losses_;
};

// As many steps as TRIREME_STEPS asks for; a few otherwise.
std::int64_t steps_asked(std::int64_t few = 4);

// Losses agree to a relative tolerance, every weight to one of its tensor's norm.
void expect_equal_training(Trained& a, Trained& b, double tolerance);
// `parallel` trains like `plain`, and its largest end offset is the one that was planned.
struct LikeOneRank {
  double tolerance = 2e-5;
  std::int64_t steps = steps_asked();
  Setup setup = {};
};
void expect_like_one_rank(const train::Config& plain, const train::Config& parallel, const LikeOneRank& how = {});
// What both have made of the same state, optimizer states included, agrees to a part of how far it has come.
void expect_equal_updates(const std::map<std::string, std::vector<float>>& before, Trained& a, Trained& b,
                          double tolerance);
// All of the state agrees to the bit.
void expect_same_state(Trained& a, Trained& b);
// Losses and all of the state agree to the bit.
void expect_same_bits(Trained& a, Trained& b);

}  // namespace trireme::testing
