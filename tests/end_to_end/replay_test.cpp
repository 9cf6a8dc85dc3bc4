// What a run says of itself at its end: the memory that it took, and that its ranks trained like one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class Closing : public Program {
 protected:
  Finished trained(std::vector<std::string> words) const {
    words.insert(words.begin(), {"train", "tiny.toml", "--output.dir=run", "--overwrite"});
    return done(words);
  }
  static std::string line(const std::string& text, const std::string& name) {
    const std::size_t at = text.find("\n" + name);
    if (at == std::string::npos) return {};
    return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  }
};

TEST_F(Closing, WithoutStepsThereIsNothingToReplay) {
  const std::string out = trained({"--parallel.mesh=dp=2", "--train.steps=0", "--replay=3"}).out;
  EXPECT_NE(out.find("not replayed on one rank: there were no steps"), std::string::npos) << out;
}

TEST_F(Closing, ReplicasEvaluateAsOneRankDoes) {
  trained({});
  const auto loss = [&](const char* mesh) {
    return nlohmann::json::parse(done({"eval", "--from", "run", "--json", mesh}).out)["loss"].get<double>();
  };
  const double one = loss("--parallel.mesh=dp=1");
  EXPECT_NE(done({"eval", "--from", "run", "--memory.limit=1KiB"}).err.find("memory.limit has no effect"),
            std::string::npos);
  for (const char* mesh : {"--parallel.mesh=dp=2", "--parallel.mesh=dp=3", "--parallel.mesh=pp=2,dp=2"})
    EXPECT_NEAR(loss(mesh), one, 1e-5 * one) << mesh;
}

// The order of sums differs, and with fewer bits the rounding of each rank's term: not the mathematics.
TEST_F(Closing, RanksOfEveryKindReplayLikeOne) {
  const std::vector<std::string> images = {"--data.images=synthetic", "--data.text=[]", "--model.width=8",
                                           "--model.image=16", "--train.batch=16"};
  const auto with = [](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<std::vector<std::string>> cases = {
      {"--parallel.mesh=pp=2", "--train.precision=fp8"},
      {"--parallel.mesh=dp=2", "--train.precision=bf16", "--parallel.zero=2"},
      {"--parallel.mesh=tp=2", "--memory.activations=sharded"},
      {"--parallel.mesh=pp=2,dp=2", "--parallel.pipeline=zero-bubble"},
      {"--parallel.mesh=dp=2", "--parallel.server=sync"},
      // Statistics of a micro-batch are those of all its rows, wherever they are.
      with(images, {"--model.family=convnet", "--parallel.mesh=dp=2", "--train.micro_batch=4"}),
      with(images, {"--model.family=resnet", "--model.layers=18", "--parallel.mesh=pp=2", "--train.micro_batch=8",
                    "--train.steps=2"}),
      with(images, {"--model.family=convnet", "--parallel.mesh=h=2"}),
  };
  for (std::vector<std::string> words : cases) {
    words.insert(words.begin(), "--replay=3");
    const std::string equal = line(trained(words).out, "equal ");
    EXPECT_NE(equal.find("replayed on one rank"), std::string::npos) << words[1] << " " << words[2] << ": " << equal;
    EXPECT_NE(equal.find("✓"), std::string::npos) << words[1] << " " << words[2] << ": " << equal;
  }
}

// Batch norms over two rows make much of a rounding error, on one rank as on several: that is measured, and said.
TEST_F(Closing, IllConditionedRunsAreJudgedByTheirOwnConditioning) {
  const std::string equal =
      line(trained({"--data.images=synthetic", "--data.text=[]", "--model.family=resnet", "--model.layers=18",
                    "--model.width=8", "--model.image=16", "--train.batch=8", "--parallel.mesh=pp=2",
                    "--train.micro_batch=2", "--train.steps=4", "--replay=4"})
               .out,
           "equal ");
  EXPECT_NE(equal.find("rounding alone makes one rank's own differ by "), std::string::npos) << equal;
  EXPECT_EQ(equal.find("✗"), std::string::npos) << equal;
}

// Parts of a pipeline may be smaller than a layer: here each place is cut, that between a table and what is added to it
// too.
TEST_F(Closing, EveryPlaceToCutTrainsLikeOneRank) {
  for (const char* family : {"gpt2", "llama"}) {
    const std::vector<std::string> words = {fmt::format("--model.family={}", family), "--model.layers=2",
                                            "--parallel.pipeline=gpipe", "--train.batch=4"};
    const auto with_stages = [&](int stages) {
      std::vector<std::string> all = words;
      all.push_back(fmt::format("--parallel.mesh=pp={}", stages));
      return all;
    };
    std::vector<std::string> most = with_stages(40);
    most.insert(most.begin(), {"train", "tiny.toml", "--dry-run"});
    const std::string error = run(most).err;
    const std::size_t at = error.find("the nearest is parallel.mesh = \"pp=");
    ASSERT_NE(at, std::string::npos) << error;
    std::vector<std::string> all = with_stages(std::stoi(error.substr(at + 35)));
    all.emplace_back("--replay=3");
    const std::string equal = line(trained(all).out, "equal ");
    EXPECT_NE(equal.find("✓"), std::string::npos) << family << ": " << equal;
  }
}

// Where the ranks compute something else by design, no verdict is given, and the key is named.
TEST_F(Closing, OtherMathematicsIsNamedAndNotJudged) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"parallel.compress", {"--parallel.mesh=dp=2", "--parallel.compress=int8"}},
      {"parallel.stage_dtype", {"--parallel.mesh=pp=2", "--parallel.stage_dtype=int8"}},
      {"memory.activations", {"--parallel.mesh=tp=2", "--memory.activations=int8", "--memory.remat=sqrt"}},
      {"parallel.pipeline", {"--parallel.mesh=pp=2", "--parallel.pipeline=pipedream", "--model.tie_embeddings=false"}},
  };
  for (auto [key, words] : cases) {
    words.insert(words.begin(), "--replay=3");
    const std::string equal = line(trained(words).out, "equal ");
    EXPECT_NE(equal.find(key + " makes them others"), std::string::npos) << equal;
    EXPECT_EQ(equal.find("✗"), std::string::npos) << equal;
    EXPECT_EQ(equal.find("✓"), std::string::npos) << equal;
  }
}

// "Measured" is what the system says of the process; what the plan says is called planned.
TEST_F(Closing, MemoryIsPlannedAndMeasured) {
  const Finished f = trained({"--parallel.mesh=dp=2"});
  const std::string memory = line(f.out, "memory  planned");
  const auto json =
      nlohmann::json::parse(done({"memory", "tiny.toml", "--parallel.mesh=dp=2", "--json", "--brief"}).out);
  std::string planned = std::to_string(json["ranks"][0]["predicted_peak_bytes"].get<std::int64_t>());
  for (std::ptrdiff_t at = std::ssize(planned) - 3; at > 0; at -= 3) planned.insert(static_cast<std::size_t>(at), ",");
  EXPECT_NE(memory.find("planned " + planned + " B on the fullest rank; measured: "), std::string::npos) << memory;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_NE(memory.find(" predicted ✓"), std::string::npos) << memory;
  // The figure is the process's own: what its parent learns when it ends is at least that.
  const std::size_t at = memory.find("measured: ") + 10;
  const double mebibytes = std::stod(memory.substr(at));
  EXPECT_EQ(memory.substr(memory.find(' ', at) + 1, 3), "MiB") << memory;
  EXPECT_LE(mebibytes, static_cast<double>(f.peak_bytes) / 0x1p20 + 0.1);
  EXPECT_GE(mebibytes, static_cast<double>(f.peak_bytes) / 0x1p20 * 0.8);
#endif
}

// Each saving that there is, and half of the micro-batch as its key counts: rows of one replica.
TEST_F(Closing, SavingsAreThoseOfTheMesh) {
  const auto savings = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"memory", "tiny.toml", "--json", "--train.batch=16"};
    all.insert(all.end(), words.begin(), words.end());
    const auto json = nlohmann::json::parse(done(all).out);
    std::map<std::string, nlohmann::json> found;
    for (const auto& one : json["what_if"])
      found[one["settings"].empty() ? "" : one["settings"][0].get<std::string>()] = one;
    return found;
  };
  const auto tensor = savings({"--parallel.mesh=tp=2"});
  ASSERT_TRUE(tensor.contains("memory.activations=sharded"));
  EXPECT_TRUE(tensor.at("memory.activations=sharded")["same_numbers"]);
  EXPECT_FALSE(savings({"--parallel.mesh=dp=2"}).contains("memory.activations=sharded"));
  const auto data = savings({"--parallel.mesh=dp=2"});
  ASSERT_TRUE(data.contains("train.micro_batch=4")) << "8 rows each, and half of them";
  EXPECT_LT(data.at("train.micro_batch=4")["predicted_peak_bytes"], data.at("")["predicted_peak_bytes"]);
}

// Statistics of each rank's own rows are other statistics; those of one row are worth a warning.
TEST_F(Closing, BatchNormsOfFewRowsAreWarnedOf) {
  const std::vector<std::string> convnet = {
      "train",           "convnet",    "--model.width=4", "--model.image=12", "--train.batch=8",
      "--train.steps=2", "--replay=2", "--overwrite",     "--output.dir=c",   "--data.images=synthetic"};
  const auto run_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = convnet;
    words.insert(words.end(), more.begin(), more.end());
    const Finished f = done(words);
    return f.out + f.err;
  };
  EXPECT_NE(run_with({"--parallel.mesh=dp=2", "--train.batch_stats=local"}).find("train.batch_stats makes them others"),
            std::string::npos);
  EXPECT_NE(run_with({"--parallel.mesh=pp=2", "--train.micro_batch=1"}).find("train.micro_batch = 8 gives them more"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
