// Distillation against PyTorch: the loss and the gradient of every parameter (make_distil_dump.py).
#include "trireme/train/distil.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/op_check.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/io/safetensors.h"

namespace trireme {
namespace {

std::vector<double> doubles(std::span<const std::byte> bytes) {
  std::vector<double> out(bytes.size() / sizeof(float));
  for (std::size_t i = 0; i < out.size(); ++i) {
    float f = 0;
    std::memcpy(&f, bytes.data() + i * sizeof(float), sizeof f);
    out[i] = static_cast<double>(f);
  }
  return out;
}

TEST(DistilReference, LossAndGradientsAreTheirs) {
  constexpr double kTolerance = 1e-5;
  const std::string folder = source_dir() + "/tests/reference/";
  const io::SafetensorsFile dump(folder + "distil.safetensors");
  train::Config config;
  config.model.family = "gpt2";
  config.model.layers = 1;
  config.model.width = 16;
  config.model.heads = 2;
  config.model.context = 16;
  config.model.vocab = 67;
  config.train.batch = 2;
  config.train.optimizer = "sgd";  // whose momentum is the gradient after one step
  config.train.clip = 0;
  config.distil.teacher = folder + "distil_teacher";
  config.distil.temperature = 2;
  config.distil.alpha = 0.7;
  config.distil.hidden = 0.5;
  const train::Registry registry;
  train::resolve_model(config, 67, registry.models);
  train::Compiled compiled = train::compile(config, registry, {.threads = 2});
  train::Session session(compiled, 2);
  session.initialize(1);
  train::load_teacher(config, registry, session);
  std::size_t parameters = 0;
  for (const ir::State& state : compiled.roles.front().module.states) {
    EXPECT_TRUE(!state.name.starts_with("teacher.") || (!state.trained && !state.saved)) << state.name;
    if (!state.trained) continue;
    ++parameters;
    const auto& tensor = dump.at("start/" + state.name);
    ASSERT_EQ(tensor.type, state.type) << state.name;
    session.write_state(state.name, 0, dump.bytes(tensor));
  }
  session.refresh_copies();
  data::Batch batch;
  batch.rows = 2;
  const auto read = [&](const char* name, auto& out) {
    const auto bytes = dump.bytes(dump.at(name));
    out.resize(bytes.size() / sizeof(out[0]));
    std::memcpy(out.data(), bytes.data(), bytes.size());
  };
  read("io/tokens", batch.tokens);
  read("io/targets", batch.targets);
  const train::StepResult result = session.step(batch, 0, 1e-3, 1);
  const double loss = doubles(dump.bytes(dump.at("io/loss"))).front();
  EXPECT_NEAR(result.loss, loss, kTolerance * loss);
  std::size_t gradients = 0;
  for (const auto& tensor : dump.tensors()) {
    if (!tensor.name.starts_with("grad/")) continue;
    ++gradients;
    const std::string name = tensor.name.substr(5);
    EXPECT_LE(testing::relative_error(doubles(session.state(name + "/momentum")), doubles(dump.bytes(tensor))),
              kTolerance)
        << "gradient of " << name;
  }
  EXPECT_EQ(gradients, parameters);
}

}  // namespace
}  // namespace trireme
