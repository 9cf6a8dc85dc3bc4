// Stages that work in an order of a user's own train like one rank.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "equivalence/trajectory.h"
#include "trireme/core/rng.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/program/schedule/zero_bubble.h"
#include "trireme/train/compile.h"

namespace trireme::testing {
namespace {

train::Config model(std::int64_t layers, std::int64_t batch, std::int64_t micro_batches) {
  train::Config config = small_model("mlp");
  config.train.batch = batch;
  config.train.micro_batch = batch / micro_batches;
  config.model.layers = layers;
  train::resolve_model(config, config.model.vocab);
  return config;
}

// A file with the schedule, for as long as this lives.
class ScheduleFile {
 public:
  explicit ScheduleFile(const std::string& text)
      : path_(std::filesystem::path(::testing::TempDir()) / fmt::format("own_{}.schedule", ::getpid())) {
    std::ofstream(path_) << text;
  }
  ~ScheduleFile() { std::filesystem::remove(path_); }
  ScheduleFile(const ScheduleFile&) = delete;
  ScheduleFile& operator=(const ScheduleFile&) = delete;

  // The same model over so many stages.
  train::Config over(train::Config plain, std::size_t stages) const {
    plain.parallel.pipeline = "file:" + path_.string();
    return over_mesh(plain, fmt::format("pp={}", stages), 0);
  }

 private:
  std::filesystem::path path_;
};

// A chunk may split its backward where another one of the same micro-batch does not.
TEST(OwnSchedules, SplitBackwardsByChunk) {
  for (const char* last :
       {"F0 F1 F0.1 F1.1 B0.1 W0.1 B1.1 B0 B1 U", "F0 F1 F0.1 F1.1 B0.1 W0.1 B1.1 B0 B1 W1 W1.1 U"}) {
    SCOPED_TRACE(last);
    const ScheduleFile file(fmt::format("F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1 U\n{}\n", last));
    const train::Config plain = model(4, 12, 2);
    expect_like_one_rank(plain, file.over(plain, 2));
  }
}

program::Schedule forwards_first_but_on_the_last(int stages, int micro_batches, bool split) {
  program::Schedule schedule = program::gpipe_schedule(stages, micro_batches);
  schedule.stages.back() = program::one_f_one_b_schedule(stages, micro_batches).stages.back();
  if (!split) return schedule;
  for (std::vector<program::Action>& actions : schedule.stages) {
    std::vector<program::Action> halves;
    for (const program::Action& a : actions) {
      halves.push_back(a);
      if (a.kind == program::Action::Kind::backward)
        halves.push_back({program::Action::Kind::weight_gradient, a.micro, a.chunk});
    }
    actions = halves;
  }
  return schedule;
}

// The last stage makes gradients long before the one before it takes the first: as many are on their way as that needs.
TEST(OwnSchedules, HaveAsManyMessagesOnTheirWayAsTheyNeed) {
  for (const int stages : {2, 3, 4})
    for (const int micro_batches : {8, 12})
      for (const bool split : {false, true}) {
        SCOPED_TRACE(fmt::format("pp={} m={}{}", stages, micro_batches, split ? " split" : ""));
        const ScheduleFile file(program::to_text(forwards_first_but_on_the_last(stages, micro_batches, split)));
        const train::Config plain = model(4, 2 * micro_batches, micro_batches);
        expect_like_one_rank(plain, file.over(plain, static_cast<std::size_t>(stages)));
      }
}

// Where the documents begin is passed on by every stage before it computes: another tensor of the same message.
TEST(OwnSchedules, HaveThemAlsoWhereSeveralTensorsGoOn) {
  train::Config plain = small_model("gpt2");
  plain.train.batch = 8;
  plain.train.micro_batch = 1;
  plain.model.layers = 3;
  plain.model.document_end = 5;
  train::resolve_model(plain, plain.model.vocab);
  const ScheduleFile file(program::to_text(forwards_first_but_on_the_last(3, 8, false)));
  expect_like_one_rank(plain, file.over(plain, 3));
}

// Whatever zero-bubble:auto may hold, its stages never wait for each other for ever: compiling proves it.
TEST(OwnSchedules, ZeroBubbleAutoRunsWithWhateverItMayHold) {
  const train::Registry registry;
  std::vector<std::vector<int>> all = {{6, 1, 2, 4, 5, 5}};
  for (std::uint32_t draw = 0; draw < 12; ++draw) {
    const RandomStream stream{.seed = draw, .site = site_of("held"), .step = 0};
    std::vector<int>& held = all.emplace_back(2 + draw % 5);
    for (std::size_t stage = 0; stage < held.size(); ++stage)
      held[stage] = 1 + static_cast<int>(stream.words(stage, 0)[0] % 8);
  }
  for (const std::vector<int>& held : all)
    for (const int micro_batches : {8, 12}) {
      SCOPED_TRACE(fmt::format("held [{}] m={}", fmt::join(held, ","), micro_batches));
      const ScheduleFile file(
          program::to_text(program::zero_bubble_auto_schedule(static_cast<int>(held.size()), micro_batches, held)));
      const train::Config plain = model(std::ssize(held), 2 * micro_batches, micro_batches);
      EXPECT_NO_THROW(train::compile(file.over(plain, held.size()), registry, {}));
    }
}

}  // namespace
}  // namespace trireme::testing
