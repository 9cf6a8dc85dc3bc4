// What a refusal proposes can be done, and why it refuses is true.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class Proposed : public Program {
 protected:
  std::string refused_dry(std::vector<std::string> words) const {
    words.insert(words.begin(), {"train", "tiny.toml", "--dry-run"});
    return refused(words);
  }
  // Of images, keys of tiny.toml that are for text are warned of before.
  std::string refused_images(const std::string& family, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train",
                                      "tiny.toml",
                                      "--dry-run",
                                      "--model.family=" + family,
                                      "--data.images=synthetic",
                                      "--model.image=16",
                                      "--model.width=8"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished f = run(words);
    EXPECT_EQ(f.code, 2) << f.err;
    return f.err;
  }
};

// Of a mesh that cannot share the heads both proposals lead to a run: other ranks, and other heads where the model can
// have some.
TEST_F(Proposed, RanksAndHeadsLeadToARun) {
  const std::vector<std::vector<std::string>> cases = {
      {"model.width=24", "model.heads=4", "parallel.mesh=tp=5"},
      {"model.width=24", "model.heads=6", "parallel.mesh=tp=4"},
      {"model.width=64", "model.heads=4", "parallel.mesh=dp=2,tp=3"},
      {"model.family=llama", "model.width=24", "model.heads=4", "model.kv_heads=2", "parallel.mesh=tp=3"},
      {"model.family=llama", "model.width=32", "model.heads=4", "model.kv_heads=4", "parallel.mesh=tp=3"},
  };
  const auto run_with = [&](std::vector<std::string> settings, const std::string& instead) {
    const std::string key = instead.substr(0, instead.find('=') + 1);
    std::erase_if(settings, [&](const std::string& s) { return s.starts_with(key); });
    std::vector<std::string> words = {"train", "tiny.toml", "--dry-run", "--" + instead};
    for (const std::string& setting : settings) words.push_back("--" + setting);
    done(words);
  };
  for (const std::vector<std::string>& settings : cases) {
    std::vector<std::string> words;
    for (const std::string& setting : settings) words.push_back("--" + setting);
    const std::string error = refused_dry(words);
    const std::size_t at = error.find("the nearest is \"");
    ASSERT_NE(at, std::string::npos) << error;
    run_with(settings, "parallel.mesh=" + error.substr(at + 16, error.find('"', at + 16) - at - 16));
    const std::string heads = ", or model.heads = ";
    if (const std::size_t other = error.find(heads); other != std::string::npos)
      run_with(settings, "model.heads=" + error.substr(other + heads.size()));
  }
  // Heads that 5 and the width share there are none; those of weights that are there stay.
  expect_none(refused_dry({"--model.width=24", "--model.heads=4", "--parallel.mesh=tp=5"}), "or model.heads");
  expect_part(refused_dry({"--model.family=llama", "--model.width=24", "--model.heads=4", "--model.kv_heads=2",
                           "--parallel.mesh=tp=3"}),
              "or model.heads = 6");
  done({"train", "tiny.toml", "--output.dir=run", "--model.heads=4", "--model.width=24"});
  expect_none(refused({"generate", "--from=run", "--prompt=a", "--parallel.mesh=tp=3"}), "or model.heads");
}

// The reason is that of the case at hand.
TEST_F(Proposed, ReasonsAreThoseOfTheCase) {
  for (const auto& [family, layers] : {std::pair("convnet", "2"), std::pair("resnet", "18")}) {
    const std::string of = fmt::format("--model.layers={}", layers);
    for (const char* batch : {"4", "12"}) {
      const std::string error = refused_images(
          family, {of, fmt::format("--train.batch={}", batch), "--parallel.mesh=tp=2", "--parallel.async_tp=true"});
      expect_part(error, "parallel.async_tp = true: no product is next to a collective over tp");
      expect_none(error, "divide");
    }
    const std::vector<std::string> workers = {of, "--parallel.mesh=dp=2", "--parallel.server=async"};
    expect_part(refused_images(family, workers), "and batch statistics of");
    std::vector<std::string> own = workers;
    own.emplace_back("--train.batch_stats=local");
    const std::string error = refused_images(family, own);
    expect_parts(error, {"and running statistics of", "train.batch_stats = \"local\""});
    expect_none(error, "batch statistics");
  }
  expect_part(refused_dry({"--parallel.mesh=tp=2", "--parallel.async_tp=true", "--train.micro_batch=1"}),
              "need rows that 2, 3 or 4 divide");
  for (const char* server : {"async", "ssp:2"}) {
    const std::string error = refused_dry({"--parallel.mesh=dp=2", fmt::format("--parallel.server={}", server),
                                           "--parallel.sharding.tokens=sequence:dp"});
    expect_parts(error, {"parallel.sharding = {\"tokens\" = \"sequence:dp\"}: workers are replicas"});
    expect_none(error, "statistics");
  }
  done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=dp=2", "--parallel.server=async",
        "--parallel.sharding.tokens=0:dp"});
  expect_part(refused_dry({"--parallel.mesh=tp=2,dp=2", "--train.batch=6", "--parallel.sharding.tokens=batch:tp"}),
              "is sharded by \"batch:tp\" and \"batch:dp\", and 4 ranks");
  expect_part(refused_images("mlp", {"--model.layers=24", "--memory.remat=full"}),
              "gradients read what begins a group");
  expect_part(refused_dry({"--memory.remat=every:9"}), "and there is no other");
}

// An axis that is proposed is one of the mesh, or comes with a mesh that has it.
TEST_F(Proposed, AnnotationsComeWithTheMeshThatTheyNeed) {
  const auto way = [&](const std::string& mesh, const std::string& sharding, const std::string& nearest) {
    const std::string error =
        refused_dry({"--parallel.mesh=" + mesh, "--parallel.sharding.*.mlp.up.weight=" + sharding});
    EXPECT_TRUE(error.ends_with("the nearest is " + nearest)) << error;
  };
  way("pp=2", "1:pp", "\"1:tp\" with parallel.mesh = \"pp=2,tp=2\"");
  way("pp=2,dp=2", "out", "\"out:tp\" with parallel.mesh = \"pp=2,dp=2,tp=2\"");
  way("dp=2", "1:tq", "\"1:tp\" with parallel.mesh = \"dp=2,tp=2\"");
  way("tp=2", "1:tq", "\"1:tp\"");
  // Tokens have no columns.
  expect_part(refused_dry({"--parallel.mesh=tp=2", "--parallel.sharding.tokens=tp"}), "the nearest is \"batch:tp\"");
  way("dp=2", "1:zz", "\"1:tp\" with parallel.mesh = \"dp=2,tp=2\"");
  way("pp=2,tp=2", "1:pp", "\"1:tp\"");
  done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=pp=2,tp=2", "--parallel.sharding.*.mlp.up.weight=1:tp"});
  expect_part(refused_images("convnet", {"--model.layers=2", "--parallel.mesh=h=2",
                                         "--parallel.sharding.blocks.0.conv.weight=0:h"}),
              "the nearest is \"images\" = \"height:h\"");
}

// More micro-batches are proposed where there can be more: by fewer rows in each, or by a larger batch.
TEST_F(Proposed, MicroBatchesThatFillTheStages) {
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train", "tiny.toml", "--dry-run", "--parallel.mesh=pp=2"};
    words.insert(words.end(), more.begin(), more.end());
    return done(words).err;
  };
  expect_part(said({"--train.batch=1"}), "idle; train.batch = 8 and train.micro_batch = 1 would make 8\n");
  expect_none(said({"--train.batch=8", "--train.micro_batch=1"}), "idle");
  expect_part(said({"--train.batch=9", "--train.micro_batch=9"}), "idle; train.micro_batch = 1 would make 9\n");
  write("three.txt", "F0 F1 F2 B0 B1 B2 U\nF0 B0 F1 B1 F2 B2 U\n");
  for (const auto& [batch, nearest] :
       {std::pair(8, "train.batch = 9 and train.micro_batch = 3"),
        std::pair(7, "train.batch = 6 and train.micro_batch = 2"),
        std::pair(1, "train.batch = 3 and train.micro_batch = 1"), std::pair(12, "train.micro_batch = 4")}) {
    const std::string error = refused_dry(
        {"--parallel.mesh=pp=2", "--parallel.pipeline=file:three.txt", fmt::format("--train.batch={}", batch)});
    EXPECT_TRUE(error.ends_with(fmt::format("the nearest is {}", nearest))) << error;
  }
}

// What is proposed for one key goes with the others of the command.
TEST_F(Proposed, ProposalsKeepTheOtherKeys) {
  const auto way = [&](const std::vector<std::string>& words, const std::string& nearest, std::vector<std::string> keys,
                       std::vector<std::string> instead) {
    std::vector<std::string> all = keys;
    all.insert(all.end(), words.begin(), words.end());
    expect_part(refused_dry(all), nearest);
    for (const std::string& word : instead) keys.push_back(word);
    keys.insert(keys.begin(), {"train", "tiny.toml", "--dry-run"});
    done(keys);
  };
  way({"--train.batch=8"}, "the nearest is 6", {"--parallel.mesh=dp=3", "--train.micro_batch=2"}, {"--train.batch=6"});
  way({"--train.batch=4", "--train.micro_batch=4"}, "the nearest is 3 with train.micro_batch = 1",
      {"--parallel.mesh=dp=3"}, {"--train.batch=3", "--train.micro_batch=1"});
  way({"--parallel.mesh=pp=2,dp=2,h=2"}, "the nearest is \"pp=2,dp=2\"", {"--train.micro_batch=4", "--train.batch=8"},
      {"--parallel.mesh=pp=2,dp=2"});
  way({"--parallel.mesh=dp=2,tp=4"}, "the nearest is \"dp=2,tp=2\", or model.heads = 4",
      {"--model.width=48", "--model.context=8", "--parallel.sequence=true", "--model.heads=6"},
      {"--parallel.mesh=dp=2,tp=2"});
  way({"--parallel.mesh=dp=2,tp=4"}, "the nearest is \"dp=2,tp=2\"",
      {"--model.width=48", "--model.context=10", "--parallel.sequence=true", "--model.heads=6"},
      {"--parallel.mesh=dp=2,tp=2"});
}

TEST_F(Proposed, LayersThatAnImageHasRoomFor) {
  expect_part(refused_images("convnet", {"--model.layers=9"}), "the nearest is model.layers = 4\n");
}

// Where two dimensions are named for one axis, the first that the tensor has is proposed.
TEST_F(Proposed, DimensionsThatTheTensorHas) {
  const auto refuse = [&](const std::string& pattern, const std::string& sharding) {
    return refused_dry({"--parallel.mesh=tp=2", "--parallel.sharding." + pattern + "=" + sharding});
  };
  expect_part(refuse("*.down.weight", "batch:tp,in:tp"), "over tp; the nearest is \"in:tp\"");
  expect_part(refuse("*.down.weight", "batch:tp,sequence:tp"), "over tp; the nearest is \"0:tp\"");
  expect_part(refuse("tokens", "sequence:tp,batch:tp"), "over tp; the nearest is \"sequence:tp\"");
  expect_part(refuse("*.up.bias", "in:tp"), "has no dimension 'in'; it has out, or 0");
  expect_part(refuse("*.up.weight", "batch:tp"), "it has in, out, vocab, or 0 to 1");
  done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=tp=2", "--parallel.sharding.*.down.weight=in:tp"});
  done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=tp=2", "--parallel.sharding.*.down.weight=0:tp"});
}

// What has no effect is not named among what the run uses.
TEST_F(Proposed, SequencesOfImagesAreNotSharded) {
  const Finished f = run({"train", "tiny.toml", "--dry-run", "--model.family=mlp", "--data.images=synthetic",
                          "--parallel.mesh=tp=2", "--parallel.sequence=true"});
  EXPECT_EQ(f.code, 0) << f.err;
  expect_part(f.err, "parallel.sequence = true has no effect");
  expect_none(f.out, "sequence parallelism");
}

// A run that is there keeps its batch and its model: other ranks are proposed, and other keys that may change.
TEST_F(Proposed, ARunThatIsThereKeepsItsSizes) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.context=15", "--model.heads=6", "--model.width=24",
        "--train.batch=12", "--parallel.mesh=tp=3", "--parallel.sequence=true"});
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train", "run", "--resume", "--dry-run"}, {"eval", "--from=run", "--batches=1"}}) {
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = words;
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    const std::string heads = refused(with({"--parallel.mesh=tp=5"}));
    expect_part(heads, "model.heads = 6; the nearest is \"tp=3\"");
    expect_none(heads, "or model.heads");
    for (const char* mesh : {"--parallel.mesh=tp=6", "--parallel.mesh=tp=2"}) {
      const std::string positions = refused(with({mesh}));
      expect_part(positions, "parallel.sequence = true");
      expect_part(positions, "the nearest is parallel.sequence = false");
      done(with({mesh, "--parallel.sequence=false"}));
    }
    done(with({"--parallel.mesh=tp=3"}));
  }
  expect_part(refused({"train", "run", "--resume", "--dry-run", "--parallel.mesh=dp=5,tp=3"}),
              "12; the nearest is \"dp=4,tp=3\"");
  done({"train", "run", "--resume", "--dry-run", "--parallel.mesh=dp=4,tp=3"});
  expect_part(refused({"train", "run", "--resume", "--dry-run", "--train.micro_batch=3", "--parallel.mesh=dp=3"}),
              "the nearest");
  expect_part(refused({"train", "run", "--resume", "--dry-run", "--train.micro_batch=3", "--parallel.mesh=dp=5"}),
              "12; the nearest is \"dp=4\"");
}

}  // namespace
}  // namespace trireme::testing
