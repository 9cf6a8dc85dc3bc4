// What Trainer::save and the checkpoints of a run keep, where the same step has had another state.
#include <gtest/gtest.h>
#include <trireme/trireme.h>

#include <filesystem>

#include "support/folder.h"
#include "support/library.h"

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kVocab = 50;

struct Tiny {
  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    const tri::Value x = embedding(b.scope("embed"), in.tokens, kVocab, 16);
    return linear_cross_entropy(b.scope("head"), x, in.targets, kVocab);
  }
};

class Saved : public ::testing::Test {
 protected:
  static tri::Data data() {
    std::vector<std::int32_t> tokens(400);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * i + i / 3) % kVocab);
    return tri::tokens_in_memory(tokens, {.vocab = kVocab, .context = 8});
  }
  static tri::Trainer trainer(const tri::TrainOptions& options) { return {Tiny{}, data(), options}; }
  tri::TrainOptions options(const std::string& dir = "", std::int64_t steps = 4) const {
    tri::TrainOptions o{.steps = steps, .batch = 4, .lr = 1e-2, .warmup = 1, .decay_steps = 6};
    if (!dir.empty()) o.dir = folder_.path(dir);
    o.checkpoint_every = "1";
    o.keep = 9;
    return o;
  }
  static void fill(tri::Trainer& t, float value) {
    t.set_values(kWeight, std::vector<float>(t.values(kWeight).size(), value));
  }
  // The first weight that the newest checkpoint of a run folder has.
  float in_folder(const std::string& dir) const {
    tri::Trainer t = trainer(options());
    t.load(folder_.path(dir));
    return t.values(kWeight)[0];
  }
  fs::file_time_type written(std::int64_t step) const {
    return fs::last_write_time(folder_.path("own/checkpoints/step-0000000" + std::to_string(step) + "/manifest.json"));
  }

  static constexpr const char* kWeight = "embed.weight";
  trireme::test::Folder folder_;
};

TEST_F(Saved, WeightsThatWereSetAreSavedIntoTheRunsOwnFolder) {
  tri::Trainer t = trainer(options("own"));
  t.run();
  fill(t, 7);
  t.save(folder_.path("own"));
  EXPECT_EQ(in_folder("own"), 7);
}

TEST_F(Saved, WeightsThatWereSetAreThoseOfTheLastCheckpoint) {
  tri::Trainer t = trainer(options("own"));
  t.on_step([&](const tri::Metrics& m) {
    if (m.step == 4) {
      t.save(folder_.path("own"));
      fill(t, 5);
    }
    return tri::Next::go;
  });
  t.run();
  EXPECT_EQ(in_folder("own"), 5);
}

TEST_F(Saved, AnotherStateTrainsOnInTheFolder) {
  tri::TrainOptions short_run = options("", 2);
  short_run.seed = 99;
  tri::Trainer other = trainer(short_run);
  other.run();
  other.save(folder_.path("other"));

  tri::Trainer t = trainer(options("own"));
  t.run();
  const float before = t.values(kWeight)[0];
  EXPECT_EQ(in_folder("own"), before);
  t.load(folder_.path("other"));
  t.run();
  EXPECT_NE(t.values(kWeight)[0], before);
  EXPECT_EQ(in_folder("own"), t.values(kWeight)[0]);
}

// Nor is a run that has nothing left to do.
TEST_F(Saved, WhatIsThereIsNotWrittenAgain) {
  tri::Trainer t = trainer(options("own"));
  t.run();
  const fs::file_time_type before = written(4);
  t.save(folder_.path("own"));
  t.run();
  t.load(folder_.path("own"));
  t.run();
  EXPECT_EQ(written(4), before);
  fs::remove_all(folder_.path("own/checkpoints/step-00000004"));
  t.save(folder_.path("own"));
  EXPECT_EQ(in_folder("own"), t.values(kWeight)[0]);
}

// Ranks at their own pace read batches ahead: those of the step that was loaded.
TEST_F(Saved, AnAsynchronousPipelineGoesOnAtTheStepThatWasLoaded) {
  tri::Plan plan;
  plan.mesh = "pp=2";
  plan.pipeline = "pipedream";
  tri::TrainOptions few = options("few", 2);
  few.micro_batch = 2;
  tri::Trainer{Tiny{}, data(), few, plan}.run();
  tri::TrainOptions more = options("", 6);
  more.micro_batch = 2;
  const auto losses = [&](bool after_others) {
    std::vector<double> all;
    tri::Trainer t{Tiny{}, data(), more, plan};
    if (after_others) {
      t.on_step([](const tri::Metrics& m) { return m.step >= 3 ? tri::Next::stop : tri::Next::go; });
      t.run();
    }
    t.load(folder_.path("few"));
    t.on_step([&](const tri::Metrics& m) {
      all.push_back(m.loss);
      return tri::Next::go;
    });
    t.run();
    return all;
  };
  EXPECT_EQ(losses(true), losses(false));
}

// What is saved after an earlier step was loaded is what the folder gives, and not what had come later.
TEST_F(Saved, LaterStepsOfAStateThatWasLeftAreRemoved) {
  tri::Trainer early = trainer(options("early", 2));
  early.run();
  tri::TrainOptions o = options("own", 6);
  tri::Trainer t = trainer(o);
  t.run();
  t.load(folder_.path("early"));
  t.save(folder_.path("own"));
  EXPECT_EQ(in_folder("own"), t.values(kWeight)[0]);
  t.on_step([](const tri::Metrics& m) { return m.step >= 4 ? tri::Next::stop : tri::Next::go; });
  t.run();
  EXPECT_EQ(in_folder("own"), t.values(kWeight)[0]);
  EXPECT_FALSE(fs::exists(folder_.path("own/checkpoints/step-00000005")));
}

// Each time that it trains or saves there.
TEST_F(Saved, AFolderIsOneTrainersAtATime) {
  tri::Trainer first = trainer(options("own", 4));
  first.on_step([](const tri::Metrics& m) { return m.step >= 2 ? tri::Next::stop : tri::Next::go; });
  first.run();
  tri::TrainOptions again = options("own", 4);
  again.resume = true;
  tri::Trainer second = trainer(again);
  bool refused = false;
  second.on_step([&](const tri::Metrics&) {
    try {
      first.run();
    } catch (const tri::Error& e) {
      refused = e.kind() == tri::Error::Kind::request;
    }
    return tri::Next::go;
  });
  second.run();
  EXPECT_TRUE(refused);
}

// A program that saves every few steps into one folder, and is killed, has the one before or the new one.
TEST_F(Saved, WhatIsThereStaysUntilTheNextIsWhole) {
  tri::Trainer t = trainer(options());
  const std::string kept = folder_.path("kept");
  t.on_step([&](const tri::Metrics& m) {
    t.save(kept);
    const auto there = fs::directory_iterator(kept + "/checkpoints");
    EXPECT_EQ(std::distance(begin(there), end(there)), 1);
    if (m.step == 2) {
      // The disk fails while the next is written: nothing can be made where it would be put together.
      const fs::path aside = kept + "/checkpoints/step-00000003.partial";
      fs::create_directories(aside);
      std::ofstream(aside / "manifest.json/").put('x');
      fs::create_directories(aside / "manifest.json" / "in the way");
    }
    return m.step == 2 ? tri::Next::stop : tri::Next::go;
  });
  t.run();
  EXPECT_EQ(in_folder("kept"), t.values(kWeight)[0]);
}

TEST_F(Saved, NothingIsLoadedWithinAStep) {
  tri::Trainer{Tiny{}, data(), options("few", 2)}.run();
  tri::Trainer t = trainer(options("", 4));
  t.on_step([&](const tri::Metrics&) {
    t.load(folder_.path("few"));
    return tri::Next::go;
  });
  EXPECT_THROW(t.run(), tri::Error);
}

}  // namespace
