// Techniques in random combinations: each trains, or is refused in one line before anything starts. What does not
// change the mathematics gives the losses, weights and optimizer states of one plain rank with the same micro-batches.
// Moments are sums of gradients: one that is 1% wrong in a single tensor is found, which losses do not show.
//
//   TRIREME_COMBINATIONS=200       as many
//   TRIREME_COMBINATION=101        … from this seed on; the others have seeds 1, 2, …
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "end_to_end/program.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/checkpoint_reader.h"

namespace trireme::testing {
namespace {

struct Choice {
  std::string key;
  std::vector<std::string> values;
};

// The first value of each is the plain one.
const std::vector<Choice>& techniques() {
  static const std::vector<Choice> all = {
      {"parallel.zero", {"0", "1", "2", "3"}},
      {"parallel.overlap", {"true", "false"}},
      {"parallel.bucket", {"25MiB", "1KiB"}},
      {"parallel.allreduce", {"auto", "ring", "recursive", "tree", "sequential", "parallel"}},
      {"parallel.server", {"none", "none", "none", "sync", "async", "ssp:2"}},
      {"parallel.compress", {"none", "none", "none", "int8", "topk:0.1", "onebit", "powersgd:2"}},
      {"parallel.pipeline", {"1f1b", "gpipe", "sequential", "zero-bubble", "interleaved:2", "pipedream"}},
      {"parallel.sequence", {"false", "true"}},
      {"parallel.stage_dtype", {"same", "same", "bf16"}},
      {"memory.remat", {"none", "every:1", "sqrt", "selective", "full"}},
      {"memory.offload", {"none", "none", "activations", "optimizer", "all"}},
      {"memory.activations", {"full", "full", "int8", "sharded"}},
      {"train.precision", {"f32", "f32", "fp16"}},
      {"runtime.threads", {"1", "2"}},
  };
  return all;
}

bool changes_mathematics(const std::string& key, const std::string& value) {
  if (key == "parallel.compress") return value != "none";
  if (key == "parallel.server") return value != "none" && value != "sync";
  if (key == "parallel.pipeline") return value == "pipedream";
  if (key == "parallel.stage_dtype") return value != "same";
  if (key == "memory.activations") return value == "int8";
  return key == "train.precision" && value != "f32";
}

constexpr std::int64_t kCombinationSteps = 3;

struct Model {
  std::vector<std::string> keys;
  // Twenty batch norms in a row make much of a rounding difference where each is over a few numbers only; over many,
  // their statistics are as exact as all else.
  int scale = 1;  // of the batch and the rows of a micro-batch
  // Small ones move in few steps to where a rounding difference decides whether a rectifier is open, on the same ranks
  // with another all-reduce too. Their state is compared after so many.
  std::int64_t steps = kCombinationSteps;
  std::vector<std::string> meshes = {"auto", "dp=2", "dp=4", "tp=2", "pp=2", "pp=2,dp=2", "dp=2,tp=2", "pp=2,tp=2"};
};

const std::vector<std::string>& image_meshes() {
  static const std::vector<std::string> all = {"auto", "dp=2", "dp=4", "h=2", "w=2", "dp=2,h=2", "pp=2", "pp=2,w=2"};
  return all;
}

const std::vector<Model>& models() {
  static const std::vector<Model> all = {
      {{"--model.family=gpt2", "--model.layers=2"}},
      {{"--model.family=llama", "--model.layers=3", "--model.kv_heads=1"}},
      {{"--model.family=mlp", "--model.layers=3", "--data.images=synthetic", "--model.image=8", "--model.classes=3"}},
      {{"--model.family=convnet", "--model.layers=2", "--data.images=synthetic", "--model.image=8", "--model.classes=3",
        "--model.width=4"},
       1,
       kCombinationSteps,
       image_meshes()},
      {{"--model.family=resnet", "--model.layers=18", "--data.images=synthetic", "--model.image=16",
        "--model.classes=3", "--model.width=4"},
       8,
       1,
       image_meshes()},
  };
  return all;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

// Weights, or one of the optimizer's states: "m" of "wte.weight/m".
std::string kind_of_tensor(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash == name.npos ? "" : name.substr(slash + 1);
}

struct Furthest {
  double share = 0;  // of its norm
  std::string tensor;
};

// Of all tensors the one that differs most. Where the exact gradient is zero, as before a norm, a tensor is rounding
// errors alone: such a one may differ by kNoise of the norm of all tensors of its kind.
constexpr double kNoise = 2e-7;
Furthest furthest(const std::map<std::string, std::vector<float>>& mine,
                  const std::map<std::string, std::vector<float>>& plain) {
  std::map<std::string, double> squares;
  for (const auto& [name, values] : plain) squares[kind_of_tensor(name)] += std::pow(norm_of(values), 2);
  Furthest most;
  for (const auto& [name, values] : plain) {
    const auto own = mine.find(name);
    if (own == mine.end() || own->second.size() != values.size()) return {1e9, name};
    std::vector<float> difference(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) difference[i] = own->second[i] - values[i];
    const double apart = norm_of(difference);
    if (!std::isfinite(apart)) return {1e9, name};
    const double beyond = apart - kNoise * std::sqrt(squares[kind_of_tensor(name)]);
    if (beyond > most.share * norm_of(values)) most = {beyond / norm_of(values), name};
  }
  return most;
}

class Combinations : public Program {
 protected:
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const nlohmann::json& line : metrics(run)) all.push_back(line["loss"]);
    return all;
  }
  // All tensors of a checkpoint.
  std::map<std::string, std::vector<float>> saved(const std::string& run, std::int64_t step) const {
    const io::CheckpointReader checkpoint(folder() / run / "checkpoints" / step_name(step));
    std::map<std::string, std::vector<float>> all;
    for (const io::CheckpointTensor& tensor : checkpoint.tensors()) {
      if (tensor.type.dtype != DType::f32) continue;
      std::vector<float>& values = all[tensor.name];
      values.resize(static_cast<std::size_t>(tensor.type.elements()));
      checkpoint.read(tensor, std::as_writable_bytes(std::span(values)));
    }
    return all;
  }
  // The one line "error: …" of what was said; empty where there are several, none, or others that are no warnings.
  static std::string only_error(const std::string& said) {
    std::string error;
    for (const std::string& line : split(said, '\n')) {
      if (line.empty() || line.starts_with("warning: ")) continue;
      if (!line.starts_with("error: ") || !error.empty()) return "";
      error = line;
    }
    return error;
  }
};

TEST_F(Combinations, TrainOrAreRefusedInOneLine) {
  const auto asked = [](const char* variable, int otherwise) {
    const char* value = std::getenv(variable);
    return value != nullptr ? std::atoi(value) : otherwise;
  };
  const int first = asked("TRIREME_COMBINATION", 1);
  const int count = asked("TRIREME_COMBINATIONS", 8);
  std::mt19937 random;
  const auto any = [&](const auto& list) -> const auto& {
    return list[std::uniform_int_distribution<std::size_t>(0, list.size() - 1)(random)];
  };
  std::vector<std::string> refused;
  int trained = 0;
  int compared = 0;
  int beyond_dp = 0;
  for (int c = first; c < first + count; ++c) {
    random.seed(static_cast<std::uint32_t>(c));
    const std::string run = "run-" + std::to_string(c);
    std::vector<std::string> common = {"train", "tiny.toml", fmt::format("--train.steps={}", kCombinationSteps),
                                       "--train.eps=1e-4"};
    const Model& model = any(models());
    common.insert(common.end(), model.keys.begin(), model.keys.end());
    common.push_back("--train.batch=" + std::to_string(8 * model.scale));
    common.push_back("--output.checkpoint_every=" + std::to_string(model.steps));
    common.push_back("--output.keep=3");
    common.push_back("--train.optimizer=" + any(std::vector<std::string>{"adamw", "sgd"}));
    const std::string mesh = any(model.meshes);
    const std::size_t dp = mesh.find("dp=");
    const int replicas = dp == std::string::npos ? 1 : mesh[dp + 3] - '0';
    const int rows = model.scale * any(std::vector<int>{1, 2});  // of a replica
    bool same = true;
    std::vector<std::string> words = common;
    std::vector<std::string> drawn = {"parallel.mesh", "train.micro_batch", "train.optimizer"};
    // A few at a time: all of them at once are nearly always refused for one pair or another.
    std::vector<Choice> some = techniques();
    std::shuffle(some.begin(), some.end(), random);
    some.resize(static_cast<std::size_t>(any(std::vector<int>{2, 3, 4, 5})));
    for (const Choice& choice : some) {
      const std::string& value = any(choice.values);
      same = same && !changes_mathematics(choice.key, value);
      words.push_back("--" + choice.key + "=" + value);
      drawn.push_back(choice.key);
    }
    words.push_back("--parallel.mesh=" + mesh);
    words.push_back("--train.micro_batch=" + std::to_string(rows));
    words.push_back("--output.dir=" + run);
    const std::string command = fmt::format("seed {}: trireme {}", c, fmt::join(words, " "));
    const Finished f = this->run(words);
    if (f.code == 2) {
      const std::string why = only_error(f.err);
      EXPECT_FALSE(why.empty()) << command << "\n" << f.err;
      // It names a key that was drawn, and the folder was not begun.
      EXPECT_TRUE(
          std::any_of(drawn.begin(), drawn.end(), [&](const std::string& key) { return why.find(key) != why.npos; }))
          << command << "\n"
          << f.err;
      EXPECT_FALSE(exists(run)) << command;
      refused.push_back(fmt::format("{}\n    {}", command, why));
      continue;
    }
    ASSERT_EQ(f.code, 0) << command << "\n" << f.out << f.err;
    ++trained;
    beyond_dp += mesh != "auto" && mesh != "dp=2" && mesh != "dp=4";
    ASSERT_EQ(std::ssize(losses(run)), kCombinationSteps) << command;
    EXPECT_EQ(f.out.find("✗"), std::string::npos) << command << "\n" << f.out;
    if (!same) continue;
    // Batch norm sees a micro-batch of all ranks: the plain run has as many rows in each.
    common.push_back("--train.micro_batch=" + std::to_string(rows * replicas));
    common.push_back("--output.dir=plain-" + std::to_string(c));
    done(common);
    const std::vector<double> plain = losses("plain-" + std::to_string(c));
    const std::vector<double> mine = losses(run);
    for (std::size_t i = 0; i < plain.size(); ++i)
      EXPECT_NEAR(mine[i], plain[i], 1e-4 * std::abs(plain[i])) << "step " << i + 1 << " of " << command;
    const Furthest most = furthest(saved(run, model.steps), saved("plain-" + std::to_string(c), model.steps));
    std::printf("seed %d: %s differs by %.1e of its norm\n", c, most.tensor.c_str(), most.share);
    EXPECT_LE(most.share, 2e-4) << most.tensor << " of " << command;
    ++compared;
  }
  std::printf("%d of %d combinations trained, %d of them compared with one plain rank\n", trained, count, compared);
  std::printf("of them %d with more than dp\n", beyond_dp);
  for (const std::string& why : refused) std::printf("refused: %s\n", why.c_str());
  EXPECT_GT(beyond_dp, count / 8);
  EXPECT_GT(trained, count / 2);
  EXPECT_GT(compared, count / 8);
}

}  // namespace
}  // namespace trireme::testing
