// Against PyTorch: logits, loss, every gradient, and all weights after ten AdamW steps (see README.md next to this
// file).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/op_check.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/io/safetensors.h"
#include "trireme/passes/autodiff.h"
#include "trireme/program/lower.h"
#include "trireme/train/session.h"

namespace trireme {
namespace {

constexpr double kTolerance = 1e-5;  // relative norm error

struct Case {
  std::string file;
  train::Config config;
  models::Model model;
};

train::Config base(const std::string& family, std::int64_t batch) {
  train::Config c;
  c.model.family = family;
  c.train.batch = batch;
  c.train.eps = 1e-4;
  return c;
}

Case gpt2_case() {
  train::Config c = base("gpt2", 2);
  c.model.layers = 2;
  c.model.width = 32;
  c.model.heads = 4;
  c.model.context = 16;
  c.model.vocab = 67;
  return {"gpt2", c, models::gpt2()};
}

Case llama_case() {
  train::Config c = base("llama", 2);
  c.model.layers = 2;
  c.model.width = 32;
  c.model.heads = 4;
  c.model.kv_heads = 2;
  c.model.ffn = 64;
  c.model.context = 16;
  c.model.vocab = 67;
  return {"llama", c, models::llama()};
}

Case resnet_case(const std::string& file, const models::ResNetShape& shape) {
  train::Config c = base(file, 4);
  c.model.image = 36;
  c.model.classes = 10;
  models::Model m;
  m.name = file;
  m.images = true;
  m.build = [shape](const ir::Builder& b, const models::Batch& in, const models::ModelConfig& config) {
    return models::build_resnet(b, in, shape, config.classes);
  };
  m.resolve = [](models::ModelConfig&, const OptionNames&) {};
  return {file, c, m};
}

train::Registry registry_with(const models::Model& model) {
  train::Registry registry;
  if (registry.models.find(model.name) == nullptr) registry.models.add(model);
  return registry;
}

std::vector<double> doubles(std::span<const std::byte> bytes) {
  std::vector<double> out(bytes.size() / sizeof(float));
  for (std::size_t i = 0; i < out.size(); ++i) {
    float f = 0;
    std::memcpy(&f, bytes.data() + i * sizeof(float), sizeof f);
    out[i] = static_cast<double>(f);
  }
  return out;
}

template <class T>
std::vector<T> values(const io::SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(file.at(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class Reference : public ::testing::Test {
 protected:
  void check(Case c) {
    const io::SafetensorsFile dump(source_dir() + "/tests/reference/" + c.file + ".safetensors");
    const train::Registry registry = registry_with(c.model);
    train::resolve_model(c.config, c.config.model.vocab, registry.models);
    train::Compiled compiled = train::compile(c.config, registry, {.threads = 2});
    train::Session session(compiled, 2);
    session.initialize(1);
    load(compiled, session, dump);
    data::Batch batch = read_batch(c, dump);
    check_logits(c, registry.ops, dump, compiled, session);
    check_gradients(compiled, session, batch, dump);
    const auto losses = values<float>(dump, "io/losses");
    const auto norms = values<float>(dump, "io/grad_norms");
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const train::StepResult r = session.step(batch, static_cast<std::int64_t>(i), 1e-3, 1);
      EXPECT_NEAR(r.loss, losses[i], kTolerance * std::abs(losses[i])) << "loss of step " << i;
      EXPECT_NEAR(r.grad_norm, norms[i], kTolerance * norms[i]) << "norm of step " << i;
    }
    for (const ir::State& state : compiled.roles.front().module.states) {
      if (dump.find("after10/" + state.name) == nullptr) continue;
      EXPECT_LE(testing::relative_error(doubles(session.state(state.name)),
                                        doubles(dump.bytes(dump.at("after10/" + state.name)))),
                kTolerance)
          << state.name << " after ten steps";
    }
    EXPECT_EQ(session.highest_offset(), compiled.arena_bytes());
  }

 private:
  // Every weight of the dump must have a place, and the other way round.
  static void load(const train::Compiled& compiled, train::Session& session, const io::SafetensorsFile& dump) {
    std::size_t loaded = 0;
    for (const ir::State& state : compiled.roles.front().module.states) {
      const bool wanted = state.trained || state.category == ir::Category::statistics;
      if (!wanted || !state.derived_from.empty()) continue;
      const auto& tensor = dump.at(state.name);
      ASSERT_EQ(tensor.type, state.type) << state.name;
      const auto bytes = dump.bytes(tensor);
      session.write_state(state.name, 0, bytes);
      ++loaded;
    }
    session.refresh_copies();
    std::size_t expected = 0;
    for (const auto& tensor : dump.tensors()) expected += tensor.name.find('/') == std::string::npos ? 1 : 0;
    EXPECT_EQ(loaded, expected);
  }

  static data::Batch read_batch(const Case& c, const io::SafetensorsFile& dump) {
    data::Batch batch;
    batch.rows = c.config.train.batch;
    if (c.model.images) {
      const auto images = values<float>(dump, "io/images");
      batch.images.assign(images.begin(), images.end());
      batch.labels = values<std::int32_t>(dump, "io/labels");
    } else {
      batch.tokens = values<std::int32_t>(dump, "io/tokens");
      batch.targets = values<std::int32_t>(dump, "io/targets");
    }
    return batch;
  }

  // A forward graph without targets gives logits; its state is copied over by name.
  static void check_logits(const Case& c, const ir::Registry& registry, const io::SafetensorsFile& dump,
                           const train::Compiled&, train::Session& session) {
    ir::Module module;
    module.registry = &registry;
    ir::Builder b(module, "micro");
    models::Batch in;
    std::string name = c.model.images ? "images" : "tokens";
    const auto& tensor = dump.at("io/" + name);
    (c.model.images ? in.images : in.tokens) = b.input(name, tensor.type);
    b.output("logits", c.model.build(b, in, c.config.model));
    const program::StateLayout layout = program::lay_out(module);
    const program::Program program = program::lower(module, layout, {.threads = 2});
    device::Arena arena(program.arena_bytes);
    ThreadPool pool(2);
    runtime::Executor executor(program, arena, pool);
    for (std::size_t s = 0; s < module.states.size(); ++s) {
      const auto bytes = session.state(module.states[s].name);
      std::memcpy(arena.data() + layout.offsets[s], bytes.data(), bytes.size());
    }
    executor.bind(name, 0, dump.bytes(tensor));
    executor.run();
    EXPECT_LE(testing::relative_error(doubles(executor.output("logits")), doubles(dump.bytes(dump.at("io/logits")))),
              kTolerance);
  }

  // The joint graph followed by one that reports every gradient.
  static void check_gradients(train::Compiled& compiled, train::Session& session, const data::Batch& batch,
                              const io::SafetensorsFile& dump) {
    ir::Graph& report = compiled.roles.front().module.add_graph("report");
    std::vector<std::string> names;
    for (const ir::State& state : compiled.roles.front().module.states) {
      if (!state.trained) continue;
      names.push_back(state.name);
      report.outputs.push_back(
          {"grad/" + state.name, report.read(compiled.roles.front().module, compiled.roles.front().module.find_state(
                                                                                passes::gradient_name(state.name)))});
    }
    report.outputs.push_back(
        {"loss", report.read(compiled.roles.front().module, compiled.roles.front().module.find_state("loss"))});
    const program::Program program =
        program::lower(compiled.roles.front().module, compiled.roles.front().layout, {.tail = "report", .threads = 2});
    device::Arena arena(program.arena_bytes);
    ThreadPool pool(2);
    runtime::Executor executor(program, arena, pool);
    for (std::size_t s = 0; s < compiled.roles.front().module.states.size(); ++s) {
      if (compiled.roles.front().module.states[s].step_local) continue;
      const auto bytes = session.state(compiled.roles.front().module.states[s].name);
      std::memcpy(arena.data() + compiled.roles.front().layout.offsets[s], bytes.data(), bytes.size());
    }
    if (batch.images.empty()) {
      executor.bind("tokens", 0, std::span<const std::int32_t>(batch.tokens));
      executor.bind("targets", 0, std::span<const std::int32_t>(batch.targets));
    } else {
      executor.bind("images", 0, std::span<const float>(batch.images));
      executor.bind("labels", 0, std::span<const std::int32_t>(batch.labels));
    }
    executor.run();
    const double loss = doubles(dump.bytes(dump.at("io/loss"))).front();
    EXPECT_NEAR(executor.scalar("loss"), loss, kTolerance * loss);
    for (const std::string& name : names) {
      const auto mine = doubles(executor.output("grad/" + name));
      const auto theirs = doubles(dump.bytes(dump.at("grad/" + name)));
      EXPECT_LE(testing::relative_error(mine, theirs), kTolerance) << "gradient of " << name;
    }
    compiled.roles.front().module.graphs.pop_back();
  }
};

TEST_F(Reference, Gpt2) { check(gpt2_case()); }
TEST_F(Reference, Llama) { check(llama_case()); }
TEST_F(Reference, ResNetBasic) { check(resnet_case("resnet_basic", {false, {1, 1, 1, 1}, {8, 16, 32, 64}})); }
TEST_F(Reference, ResNetBottleneck) { check(resnet_case("resnet_bottleneck", {true, {2, 1, 1, 1}, {4, 8, 16, 32}})); }

}  // namespace
}  // namespace trireme
