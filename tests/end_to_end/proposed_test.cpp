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
  expect_part(refused_images("mlp", {"--model.layers=24", "--memory.remat=full"}),
              "gradients read what begins a group");
  expect_part(refused_dry({"--memory.remat=every:9"}), "and there is no other");
}

}  // namespace
}  // namespace trireme::testing
