#include "equivalence/trajectory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/larger.h"
#include "trireme/core/rng.h"

namespace trireme::testing {
namespace {

using program::Instruction;

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2.0);
  return std::sqrt(squares);
}

double norm(const std::vector<float>& a) { return distance(a, std::vector<float>(a.size())); }

// What the optimizer keeps is judged by the weights that it makes.
std::map<std::string, std::vector<float>> weights_of(Trained& trained) {
  auto all = trained.state();
  std::erase_if(all, [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
  return all;
}

// Of a parameter, the first operand, by a gradient or a momentum, the second.
bool updates(const Instruction& i) {
  return i.kind == Instruction::Kind::launch &&
         (i.op->name == "sgd" || i.op->name == "adamw" || i.op->name == "descend");
}

// The programs that make a step's updates, and the place of one update in each: of the first parameter there.
void each_update(train::Compiled& compiled,
                 const std::function<void(train::Role&, program::Program&, std::size_t)>& f) {
  int found = 0;
  for (train::Role& role : compiled.roles)
    for (program::Program& p : role.programs)
      for (std::size_t i = 0; i < p.instructions.size(); ++i)
        if (updates(p.instructions[i])) {
          f(role, p, i);
          ++found;
          break;
        }
  EXPECT_GT(found, 0) << "nothing was planted";
}

// One parameter of every role is never updated.
void skip_an_update(train::Compiled& compiled) {
  each_update(compiled, [](train::Role&, program::Program& p, std::size_t at) {
    const std::int32_t event = p.instructions[at].records;
    p.instructions.erase(p.instructions.begin() + static_cast<std::ptrdiff_t>(at));
    if (event != program::kNone)
      for (Instruction& i : p.instructions) std::erase(i.waits, event);
  });
}

// And the gradient of one is twice as large.
void scale_a_gradient(train::Compiled& compiled) {
  each_update(compiled, [](train::Role& role, program::Program& p, std::size_t at) {
    const Instruction& update = p.instructions[at];
    Instruction scale;
    scale.name = "planted";
    scale.op = &role.module.registry->at("scale");
    scale.attributes = {{"factor", 2.0}};
    scale.inputs = scale.outputs = {update.inputs[1]};
    scale.phase = ir::Phase::update;
    scale.stream = update.stream;
    scale.waits = update.waits;
    p.instructions.insert(p.instructions.begin() + static_cast<std::ptrdiff_t>(at), scale);
  });
}

}  // namespace

Trajectory train_plan(Trained& trained, const train::Config& config, std::int64_t steps) {
  Trajectory result;
  result.start = weights_of(trained);
  trained.train(steps);
  result.weights = weights_of(trained);
  result.losses = trained.losses();
  const data::Batch rows = batch_of(config, steps);
  trained.session().evaluate(rows);
  if (!reads_images(config))
    trained.session().predict(std::span(rows.tokens).first(static_cast<std::size_t>(config.model.context)));
  std::string fullest;
  for (const train::Role& role : trained.compiled().roles)
    for (const program::Program& p : role.programs)
      if (p.arena_bytes == trained.compiled().arena_bytes()) {
        fullest += fmt::format(" {} of {}", p.name, role.name);
        for (const program::Buffer& b : p.buffers)
          if (b.tier == 0 && b.offset + b.bytes > trained.session().highest_offset())
            fullest +=
                fmt::format(", '{}' ({} B at {}, instructions {} to {})", b.name, b.bytes, b.offset, b.first, b.last);
      }
  EXPECT_EQ(trained.session().highest_offset(), trained.compiled().arena_bytes()) << "planned for" << fullest;
  return result;
}

void move_weights(const std::string& name, std::vector<float>& values, const Moved& moved) {
  SplitMix random(site_of(name) + moved.draw);
  for (float& v : values)
    v = static_cast<float>(static_cast<double>(v) * (random.next() % 2 == 0 ? 1 + moved.by : 1 - moved.by));
}

void move_weights(Trained& trained, const Moved& moved) {
  for (auto& [name, values] : trained.state()) {
    if (name.find('/') != std::string::npos) continue;  // the optimizer's
    move_weights(name, values, moved);
    trained.session().write_state(name, 0, std::as_bytes(std::span(values)));
  }
  trained.session().refresh_copies();
}

Difference compare(const Trajectory& reference, const Trajectory& planned, const Tolerance& tolerance) {
  Difference result;
  const double never = std::numeric_limits<double>::infinity();
  if (reference.losses.empty() || reference.weights.empty()) return {never, never, "nothing, which was not compared"};
  if (reference.losses.size() != planned.losses.size()) return {never, never, "the number of losses"};
  for (std::size_t i = 0; i < reference.losses.size(); ++i)
    result.loss = larger(result.loss, std::abs(planned.losses[i] - reference.losses[i]) /
                                          (tolerance.loss * std::abs(reference.losses[i])));
  double squares = 0;
  double elements = 0;
  for (const auto& [name, values] : reference.weights) {
    if (name.find("running_") != std::string::npos) continue;  // statistics move by more than weights do
    squares += std::pow(distance(values, reference.start.at(name)), 2.0);
    elements += static_cast<double>(values.size());
  }
  const double typical = std::sqrt(squares / elements);
  for (const auto& [name, values] : reference.weights) {
    const auto theirs = planned.weights.find(name);
    if (theirs == planned.weights.end()) return {never, never, name + ", which is missing"};
    const double moved = distance(values, reference.start.at(name));
    const double slack = 0.05 * typical * std::sqrt(static_cast<double>(values.size()));
    const double allowed = tolerance.weights * (moved + slack) + std::numeric_limits<float>::epsilon() * norm(values);
    const double apart = distance(values, theirs->second) / allowed;
    if (apart > result.weights || std::isnan(apart)) {  // and what is no number stays
      result.weights = apart;
      result.worst =
          fmt::format("{}, which moved {:.3g} and is {:.3g} away", name, moved, distance(values, theirs->second));
    }
  }
  return result;
}

const std::vector<PlantedFault>& planted_faults() {
  static const std::vector<PlantedFault> all = {{"a skipped update", skip_an_update},
                                                {"a scaled gradient", scale_a_gradient}};
  return all;
}

void expect_like_by_distance(const train::Config& plain, const train::Config& parallel, const LikeByDistance& how) {
  Trained one(plain, how.setup);
  const Trajectory reference = train_plan(one, plain, how.steps);
  Trained many(parallel, how.setup);
  const Difference apart = compare(reference, train_plan(many, parallel, how.steps), how.tolerance);
  EXPECT_LE(apart.loss, 1) << "losses";
  EXPECT_LE(apart.weights, 1) << apart.worst;
  if (!how.planted) return;
  for (const PlantedFault& fault : planted_faults()) {
    Setup setup = how.setup;
    setup.rework = fault.plant;
    Trained faulty(parallel, setup);
    EXPECT_GT(compare(reference, train_plan(faulty, parallel, how.steps), how.tolerance).weights, 1)
        << fault.name << " is not found";
  }
}

}  // namespace trireme::testing
