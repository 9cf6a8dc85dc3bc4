// The plan is what happens: to the byte, for every kind of model.
#include <gtest/gtest.h>

#include <numeric>

#include "equivalence/training.h"

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
    for (const char* precision : {"f32", "bf16"})
      for (const int micro_batches : {1, 4}) all.push_back({model, precision, micro_batches});
  return all;
}

class Memory : public ::testing::TestWithParam<Case> {};

TEST_P(Memory, PredictedPeakIsMeasuredAndGuardsAreIntact) {
  train::Config config = small_model(GetParam().model);
  config.train.precision = GetParam().precision;
  config.train.micro_batch = config.train.batch / GetParam().micro_batches;
  config.model.dropout = 0.1;
  Trained t(config, {.threads = 2});
  t.train(2);
  const data::Batch rows = batch_of(config, 9);
  t.session().evaluate(rows);
  if (!reads_images(config))
    t.session().predict(std::span(rows.tokens).first(static_cast<std::size_t>(config.model.context)));
  // Throws when a guard byte has changed.
  EXPECT_EQ(t.session().measured_peak(), t.compiled().arena_bytes);

  for (const program::Program* p : {&t.compiled().step, &t.compiled().eval, &t.compiled().predict}) {
    if (p->instructions.empty()) continue;
    const program::PeakReport peak = program::peak(*p);
    EXPECT_EQ(std::accumulate(peak.categories.begin(), peak.categories.end(), peak.padding), peak.bytes) << p->name;
    EXPECT_EQ(peak.bytes, p->arena_bytes) << p->name;
    EXPECT_GE(p->arena_bytes, p->lower_bound) << p->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Memory, ::testing::ValuesIn(cases()), [](const auto& one) {
  return one.param.model + "_" + one.param.precision + "_" + std::to_string(one.param.micro_batches);
});

// Weights, gradients and AdamW's two states in f32: sixteen bytes for each parameter, and not one more. In bf16 a copy
// of each matrix beside its master.
TEST(MemoryTable, BytesPerParameter) {
  const auto bytes_of = [](const Trained& t, const auto& wanted) {
    std::size_t bytes = 0;
    for (const ir::State& state : t.compiled().module.states)
      if (wanted(state)) bytes += state.type.bytes();
    return bytes;
  };
  train::Config config = small_model("gpt2");
  const Trained f32(config);
  config.train.precision = "bf16";
  const Trained bf16(config);
  const std::size_t parameters = f32.compiled().parameters();
  EXPECT_EQ(bf16.compiled().parameters(), parameters);
  const auto trained = [](const ir::State& s) { return s.trained; };
  const auto optimizer = [](const ir::State& s) { return s.category == ir::Category::optimizer; };
  const auto gradient = [](const ir::State& s) { return s.category == ir::Category::gradients; };
  const auto copy = [](const ir::State& s) { return !s.derived_from.empty(); };
  EXPECT_EQ(bytes_of(f32, trained), 4 * parameters);
  EXPECT_EQ(bytes_of(f32, optimizer), 8 * parameters);
  EXPECT_EQ(bytes_of(f32, gradient), 4 * parameters);
  EXPECT_EQ(bytes_of(f32, copy), 0U);
  EXPECT_EQ(bytes_of(bf16, trained), 4 * parameters);
  EXPECT_EQ(bytes_of(bf16, optimizer), 8 * parameters);

  const ir::Module& module = bf16.compiled().module;
  for (const ir::State& state : module.states) {
    if (!state.trained || !state.decayed) continue;
    const ir::StateId low = module.find_state(state.name + "/bf16");
    ASSERT_NE(low, ir::kNone) << state.name << " has no low-precision copy";
    EXPECT_EQ(module.state(low).type, (TensorType{DType::bf16, state.type.shape}));
    EXPECT_FALSE(module.state(low).saved);
  }
  // The table's row counts masters and copies.
  const auto weights = static_cast<std::size_t>(program::Category::weights);
  EXPECT_EQ(program::peak(bf16.compiled().step).categories[weights],
            bytes_of(bf16, [&](const ir::State& s) { return trained(s) || copy(s); }));
  EXPECT_EQ(program::peak(f32.compiled().step).categories[weights], 4 * parameters);
}

}  // namespace
}  // namespace trireme::testing
