// Kernels are given what lies within the plan, to its last byte, for every kind of model.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "equivalence/training.h"
#include "trireme/program/memory_plan.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model;
  std::string precision;
  int micro_batches;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : small_models())
    for (const char* precision : {"f32", "bf16", "fp16"})
      for (const int micro_batches : {1, 4}) all.push_back({model, precision, micro_batches});
  return all;
}

class Memory : public ::testing::TestWithParam<Case> {};

TEST_P(Memory, OffsetsLieWithinThePlanAndGuardsAreIntact) {
  train::Config config = small_model(GetParam().model);
  config.train.precision = GetParam().precision;
  config.train.micro_batch = config.train.batch / GetParam().micro_batches;
  config.model.dropout = 0.1;
  Trained t(config, {.threads = 2});
  // In fp16 the first steps may find the scale too high; their updates run all the same.
  t.step();
  t.step();
  const data::Batch rows = batch_of(config, 9);
  t.session().evaluate(rows);
  if (reads_images(config))
    t.session().predict(std::span(rows.images).first(rows.images.size() / static_cast<std::size_t>(rows.rows)));
  else
    t.session().predict(std::span(rows.tokens).first(static_cast<std::size_t>(config.model.context)));
  // The largest end of what the executor has handed to a kernel, which it takes from the plan. Throws when a guard byte
  // has changed, which a kernel does that goes beyond.
  EXPECT_EQ(t.session().highest_offset(), t.compiled().arena_bytes());

  for (const char* name : {"step", "eval", "predict"}) {
    const program::Program* p = t.role().find(name);
    ASSERT_NE(p, nullptr) << name;
    const program::PeakReport peak = program::peak(*p);
    EXPECT_EQ(std::accumulate(peak.categories.begin(), peak.categories.end(), peak.padding), peak.bytes) << p->name;
    EXPECT_EQ(peak.bytes, p->arena_bytes) << p->name;
    EXPECT_GE(p->arena_bytes, p->lower_bound) << p->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Memory, ::testing::ValuesIn(cases()), [](const auto& one) {
  return one.param.model + "_" + one.param.precision + "_" + std::to_string(one.param.micro_batches);
});

std::size_t bytes_of(const Trained& t, const std::function<bool(const ir::State&)>& wanted) {
  std::size_t bytes = 0;
  for (const ir::State& state : t.role().module.states)
    if (wanted(state)) bytes += state.type.bytes();
  return bytes;
}
bool is_master(const ir::State& s) { return s.trained; }
bool is_optimizer(const ir::State& s) { return s.category == ir::Category::optimizer; }
bool is_gradient(const ir::State& s) { return s.category == ir::Category::gradients; }
bool is_copy(const ir::State& s) { return !s.derived_from.empty() && s.type.dtype != DType::f32; }

// With AdamW and one micro-batch, sixteen bytes for each parameter in every precision, and not one more: in f32 the
// parameter, its gradient and two states; in bf16 and fp16 half of the gradient's place goes to the copy that is
// computed with. What stays f32 (the norms' weights) has no copy and an f32 gradient. Several micro-batches are summed
// in f32.
TEST(MemoryTable, SixteenBytesPerParameter) {
  for (const std::string& model : small_models())
    for (const char* precision : {"f32", "bf16", "fp16"})
      for (const int micro_batches : {1, 2}) {
        SCOPED_TRACE(model + " " + precision + " " + std::to_string(micro_batches));
        train::Config config = small_model(model);
        config.train.precision = precision;
        config.train.micro_batch = config.train.batch / micro_batches;
        const Trained t(config);
        const std::size_t parameters = t.compiled().parameters();
        const std::size_t copies = bytes_of(t, is_copy);
        EXPECT_EQ(bytes_of(t, is_master), 4 * parameters);
        EXPECT_EQ(bytes_of(t, is_optimizer), 8 * parameters);
        EXPECT_EQ(bytes_of(t, is_gradient), 4 * parameters - (micro_batches == 1 ? copies : 0));
        EXPECT_EQ(copies > 0, config.train.precision != train::Precision::f32);
        // The table of `trireme memory`: masters, copies and running statistics are weights.
        const program::PeakReport peak = program::peak(t.role().program("step"));
        const std::size_t statistics =
            bytes_of(t, [](const ir::State& s) { return s.category == ir::Category::statistics; });
        EXPECT_EQ(peak.categories[static_cast<std::size_t>(program::Category::weights)],
                  4 * parameters + copies + statistics);
        EXPECT_EQ(peak.categories[static_cast<std::size_t>(program::Category::optimizer)], 8 * parameters);
      }
}

TEST(MemoryTable, EveryMatrixHasACopyThatIsNotSaved) {
  for (const auto& [precision, low] : {std::pair{"bf16", DType::bf16}, std::pair{"fp16", DType::f16}}) {
    train::Config config = small_model("gpt2");
    config.train.precision = precision;
    const Trained t(config);
    const ir::Module& module = t.role().module;
    for (const ir::State& state : module.states) {
      if (!state.trained || !state.decayed) continue;
      const ir::StateId copy = module.find_state(state.name + "/" + name_of(low));
      ASSERT_NE(copy, ir::kNone) << state.name << " has no low-precision copy";
      EXPECT_EQ(module.state(copy).type, (TensorType{low, state.type.shape}));
      EXPECT_FALSE(module.state(copy).saved);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
