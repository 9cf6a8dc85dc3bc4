// Pruning and distillation as a person uses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <sstream>

#include "end_to_end/program.h"
#include "trireme/io/checkpoint_reader.h"

namespace trireme::testing {
namespace {

using Smaller = Program;

const std::vector<std::string> kPrune = {"--prune.method=magnitude", "--prune.begin=1", "--prune.end=5",
                                         "--prune.every=2"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Masks and scores are part of what a run goes on with.
TEST_F(Smaller, APrunedRunThatWasCutEndsAsTheUndisturbedOne) {
  for (const char* method : {"magnitude", "movement"}) {
    const std::vector<std::string> keys =
        with(kPrune, {std::string("--prune.method=") + method, "--train.decay_steps=6", "--overwrite"});
    done(with({"train", "tiny.toml", "--output.dir=whole"}, keys));
    done(with({"train", "tiny.toml", "--output.dir=cut", "--train.steps=3"}, keys));
    std::vector<std::string> rest =
        with({"train", "tiny.toml", "--output.dir=cut", "--train.steps=6", "--resume"}, keys);
    rest.pop_back();
    done(rest);
    EXPECT_EQ(state("cut", 6), state("whole", 6));
  }
}

// Killed while it writes checkpoints or between them, a pruned run and one that is taught end as undisturbed ones.
TEST_F(Smaller, KilledRunsEndAsUndisturbedOnes) {
  done({"train", "tiny.toml", "--output.dir=teacher"});
  const std::vector<std::vector<std::string>> ways = {
      {"--prune.method=movement", "--prune.begin=3", "--prune.end=60", "--prune.every=4"},
      {"--prune.method=magnitude", "--prune.schedule=iterative", "--prune.begin=10", "--prune.every=20",
       "--prune.rounds=3", "--prune.rewind=4"},
      {"--model.layers=1", "--distil.teacher=teacher", "--distil.hidden=0.1"}};
  for (std::size_t w = 0; w < ways.size(); ++w) {
    SCOPED_TRACE(w);
    const std::string run = "cut" + std::to_string(w), whole = "whole" + std::to_string(w);
    const std::vector<std::string> keys =
        with({"train", "tiny.toml", "--train.steps=80", "--train.decay_steps=80"}, ways[w]);
    const auto newest = [&] {
      const std::vector<std::string> names =
          exists(run + "/checkpoints") ? names_in(run + "/checkpoints") : std::vector<std::string>{};
      std::int64_t step = 0;
      for (const std::string& name : names)
        if (!name.ends_with(".partial")) step = std::max<std::int64_t>(step, std::stoll(name.substr(5)));
      return step;
    };
    int kills = 0;
    for (const std::int64_t after : {2, 11, 31, 50}) {
      Running cut(folder(), with(keys, {"--output.dir=" + run, "--output.checkpoint_every=1", "--resume"}));
      if (!cut.wait_until([&] { return newest() >= after; })) break;
      cut.signal(SIGKILL);
      if (cut.wait().code == 128 + SIGKILL) ++kills;
    }
    EXPECT_GT(kills, 0) << "no run was killed: nothing was shown";
    done(with(keys, {"--output.dir=" + run, "--resume"}));
    done(with(keys, {"--output.dir=" + whole}));
    EXPECT_EQ(state(run, 80), state(whole, 80));
  }
}

TEST_F(Smaller, BadPruningIsRefusedByKey) {
  const auto expect = [&](const std::vector<std::string>& keys, const char* part) {
    const std::string said = refused(with({"train", "tiny.toml", "--output.dir=none"}, keys));
    EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_FALSE(exists("none"));
  };
  expect({"--prune.sparsity=0.5", "--prune.pattern=2:4"}, "prune.pattern");
  expect({"--prune.method=magnitude", "--prune.sparsity=1"}, "prune.sparsity");
  expect({"--prune.method=magnitude", "--prune.begin=100"}, "prune.");
  expect({"--prune.method=magnitude", "--prune.schedule=iterative", "--prune.begin=1", "--prune.every=100"},
         "the nearest is prune.");
  expect({"--prune.method=magnitude", "--prune.pattern=channels"}, "channels");
  expect({"--prune.method=magnitude", "--prune.pattern=blocks"}, "trireme compress");
  expect({"--prune.method=magnitud"}, "magnitude");
  expect({"--distil.alpha=0.9"}, "distil.teacher");
  expect({"--distil.teacher=nowhere"}, "distil.teacher = \"nowhere\"");
}

TEST_F(Smaller, CompressTeachesAStudentAndGoesOn) {
  done({"train", "tiny.toml", "--output.dir=teacher", "--model.layers=2"});
  const std::vector<std::string> distil = {
      "compress", "teacher",   "--distil", "--model.layers=1", "--train.steps=12", "--out", "student", "--decode",
      "4",        "--batches", "1"};
  const Finished made = done(distil);
  EXPECT_NE(made.out.find("before "), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("after "), std::string::npos);
  EXPECT_EQ(metrics("student").back()["step"], 12);
  EXPECT_NE(read("student/config.toml").find("teacher = \""), std::string::npos);
  // It is a run as any other.
  done({"generate", "--from", "student", "--prompt", "a", "--tokens", "2"});
  // What was not given follows from the student's own shape.
  done({"compress", "teacher", "--distil", "--model.heads=1", "--model.width=8", "--train.steps=2", "--out", "narrow"});
  const std::string same = refused({"compress", "teacher", "--distil", "--out", "none"});
  EXPECT_NE(same.find("--model.layers=1"), std::string::npos) << same;
  EXPECT_FALSE(exists("none"));
  refused({"compress", "teacher", "--distil", "--model.layers=1", "--out", "teacher"});
}

TEST_F(Smaller, AStudentLearnsFromARun) {
  done({"train", "tiny.toml", "--output.dir=teacher"});
  const std::vector<std::string> student = {"train",
                                            "tiny.toml",
                                            "--model.layers=1",
                                            "--distil.teacher=teacher",
                                            "--distil.hidden=0.1",
                                            "--train.decay_steps=6"};
  done(with(student, {"--output.dir=whole"}));
  done(with(student, {"--output.dir=cut", "--train.steps=3"}));
  done(with(student, {"--output.dir=cut", "--train.steps=6", "--resume"}));
  EXPECT_EQ(state("cut", 6), state("whole", 6));
  done(with(student, {"--output.dir=tp", "--parallel.mesh=tp=2"}));
  done(with(student, {"--output.dir=cut3", "--parallel.mesh=dp=2", "--parallel.zero=3"}));
  for (const char* run : {"tp", "cut3"})
    EXPECT_NEAR(metrics(run).back()["loss"].get<double>(), metrics("whole").back()["loss"].get<double>(), 1e-5) << run;
  const std::string said =
      refused({"train", "tiny.toml", "--output.dir=other", "--distil.teacher=teacher", "--model.vocab=300"});
  EXPECT_NE(said.find("distil.teacher"), std::string::npos) << said;
  EXPECT_NE(said.find("model.vocab = 300"), std::string::npos) << said;
  done({"compress", "teacher", "--out", "codes", "--weights", "int8", "--decode", "0"});
  const std::string quantized = refused({"train", "tiny.toml", "--output.dir=other", "--distil.teacher=codes"});
  EXPECT_NE(quantized.find("quantized weights"), std::string::npos) << quantized;
}

std::uintmax_t checkpoint_bytes(const std::filesystem::path& run) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "checkpoints"))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  return bytes;
}

// The teacher writes, and the student reads: no graph of its own.
TEST_F(Smaller, AStudentLearnsFromWhatItsTeacherWrites) {
  done({"train", "tiny.toml", "--output.dir=teacher", "--train.steps=30"});
  std::string written;
  for (int seed = 1; seed <= 12; ++seed)
    written +=
        done({"generate", "--from", "teacher", "--prompt", "a", "--tokens", "200", "--seed", std::to_string(seed)}).out;
  write("written.txt", written);
  done({"train", "tiny.toml", "--model.layers=1", "--data.text=written.txt", "--data.eval=text.txt", "--train.steps=30",
        "--output.dir=student"});
  const std::vector<nlohmann::json> lines = metrics("student");
  EXPECT_LT(lines.back()["loss"].get<double>(), lines.front()["loss"].get<double>());
  // It learns what the teacher has of the held-out text, too.
  std::vector<double> held_out;
  for (const nlohmann::json& line : lines)
    if (line.contains("eval_loss")) held_out.push_back(line["eval_loss"].get<double>());
  ASSERT_FALSE(held_out.empty());
  EXPECT_LT(held_out.back(), std::log(256.0));
  done({"generate", "--from", "student", "--prompt", "a", "--tokens", "4"});
}

// Keys, generation, evaluation, training and export follow the smaller shape.
TEST_F(Smaller, SlicesLeaveATrainedModel) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.family=llama", "--model.heads=4"});
  const Finished f = done({"compress", "run", "--out", "small", "--prune", "neurons:0.5,heads:0.5", "--decode", "4"});
  EXPECT_NE(f.out.find("model.heads 4 → 2"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("smaller"), std::string::npos) << f.out;
  EXPECT_NE(read("small/config.toml").find("heads = 2"), std::string::npos);
  done({"generate", "--from", "small", "--prompt", "a", "--tokens", "4"});
  done({"eval", "--from", "small"});
  done({"export", "small", "hf"});
  done({"eval", "--from", "hf", "--data.text=text.txt", "--data.tokenizer=bytes"});
  done({"train", "small", "--resume", "--train.steps=3"});
  // A GPT-2 without some of its heads has no shape in transformers.
  done({"train", "tiny.toml", "--output.dir=gpt2"});
  done({"compress", "gpt2", "--out", "heads", "--prune", "heads:0.5", "--decode", "0"});
  done({"generate", "--from", "heads", "--prompt", "a", "--tokens", "4"});
  EXPECT_NE(refused({"export", "heads", "hf2"}).find("model.heads"), std::string::npos);
  EXPECT_NE(refused({"compress", "gpt2", "--out", "x", "--prune", "channels:0.5"}).find("channels"), std::string::npos);
  EXPECT_NE(refused({"compress", "gpt2", "--out", "x", "--prune", "neurons:1.5"}).find("--prune"), std::string::npos);
}

// A checkpoint of zeros is small, and what is read from it is what was.
TEST_F(Smaller, ZerosAreNotStored) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.width=64", "--model.vocab=256"});
  done({"compress", "run", "--out", "dense", "--prune", "unstructured:0.01", "--decode", "0"});
  done({"compress", "run", "--out", "sparse", "--prune", "unstructured:0.9", "--decode", "0"});
  done({"compress", "run", "--out", "pattern", "--prune", "2:4", "--decode", "0"});
  const auto dense = checkpoint_bytes(folder() / "dense");
  EXPECT_LT(checkpoint_bytes(folder() / "sparse"), dense * 7 / 10);  // embeddings are not pruned
  EXPECT_LT(checkpoint_bytes(folder() / "pattern"), dense * 9 / 10);
  const auto loss = [&](const std::string& run) {
    return nlohmann::json::parse(done({"eval", "--from", run, "--json"}).out)["loss"].get<double>();
  };
  const double before = loss("sparse");
  done({"compress", "sparse", "--out", "again", "--prune", "unstructured:0.5", "--decode", "0"});  // no more zeros
  EXPECT_EQ(loss("again"), before);
  EXPECT_EQ(checkpoint_bytes(folder() / "again"), checkpoint_bytes(folder() / "sparse"));
  const std::string table = done({"compress", "run", "--sensitivity", "--batches", "1"}).out;
  EXPECT_NE(table.find("blocks.0.mlp.up.weight"), std::string::npos) << table;
}

// Training fills what was pruned: that is said, with the keys that keep it, and these do.
TEST_F(Smaller, ZerosThatTrainingWouldFillAreWarnedOf) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.layers=2"});
  const auto zeros = [&](const std::string& run, std::int64_t step) {
    const io::CheckpointReader reader(folder() / run / "checkpoints" / step_name(step));
    const io::CheckpointTensor& tensor = reader.at("blocks.1.mlp.up.weight");
    std::vector<float> values(static_cast<std::size_t>(tensor.type.elements()));
    reader.read(tensor, std::as_writable_bytes(std::span(values)));
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] == 0) places.push_back(i);
    return places;
  };
  for (const std::string pattern : {"2:4", "unstructured:0.8"}) {
    SCOPED_TRACE(pattern);
    const std::string name = pattern.substr(0, 2);
    done({"compress", "run", "--out", name, "--prune", pattern, "--decode", "0"});
    std::filesystem::copy(folder() / name, folder() / (name + "-filled"), std::filesystem::copy_options::recursive);
    const Finished filled = done({"train", name + "-filled", "--resume"});
    expect_part(filled.err, "warning: 8 weights have been pruned (");
    expect_part(filled.err, "and prune.method = \"none\" lets their zeros fill up; to keep them: --prune.method=");
    EXPECT_EQ(zeros(name + "-filled", kSteps).size(), 0U);
    std::vector<std::string> keeps = {"train", name, "--resume", "--parallel.mesh=dp=2"};
    std::istringstream words(filled.err.substr(filled.err.find("to keep them: ") + 14));
    for (std::string word; words >> word && word.starts_with("--");) keeps.push_back(word);
    EXPECT_EQ(keeps.size(), 8U);
    const std::vector<std::size_t> pruned = zeros(name, 0);
    const Finished kept = done(keeps);
    expect_part(kept.err, "8 weights come pruned: their zeros stay");
    expect_none(kept.err, "have been pruned");
    EXPECT_EQ(zeros(name, kSteps), pruned);
  }
  // Of an exported folder the zeros stay as well.
  done({"compress", "run", "--out", "un", "--prune", "unstructured:0.8", "--decode", "0", "--overwrite"});
  done({"export", "un", "folder"});
  const Finished folder_kept =
      done({"train", "tiny.toml", "--init.from=folder", "--output.dir=on", "--model.layers=2",
            "--prune.method=magnitude", "--prune.sparsity=0.79", "--prune.schedule=oneshot", "--prune.begin=1"});
  expect_part(folder_kept.err, "8 weights come pruned: their zeros stay");
  EXPECT_EQ(zeros("on", kSteps), zeros("un", 0));
  // Of weights that nobody has pruned nothing is said.
  done({"compress", "run", "--out", "fewer", "--prune", "neurons:0.5", "--decode", "0"});
  expect_none(done({"train", "fewer", "--resume"}).err, "have been pruned");
}

// A model that is smaller in both ways: what is pruned is zero in the codes, and slices that left have none.
TEST_F(Smaller, PrunedAndQuantised) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.width=64", "--model.heads=4", "--model.vocab=256"});
  const auto loss = [&](const std::string& run) {
    return nlohmann::json::parse(done({"eval", "--from", run, "--json"}).out)["loss"].get<double>();
  };
  done({"compress", "run", "--out", "zeros", "--prune", "unstructured:0.5", "--decode", "0"});
  done({"compress", "run", "--out", "both", "--prune", "unstructured:0.5", "--weights", "int8", "--decode", "0"});
  EXPECT_NEAR(loss("both"), loss("zeros"), 5e-3);
  EXPECT_NE(loss("both"), loss("zeros"));
  const io::CheckpointReader pruned(folder() / "zeros" / "checkpoints" / step_name(0));
  const io::CheckpointReader stored(folder() / "both" / "checkpoints" / step_name(0));
  const std::string name = "blocks.0.mlp.up.weight";
  std::vector<float> weights(static_cast<std::size_t>(pruned.at(name).type.elements()));
  std::vector<std::int8_t> codes(weights.size());
  pruned.read(pruned.at(name), std::as_writable_bytes(std::span(weights)));
  stored.read(stored.at(name + "/codes"), std::as_writable_bytes(std::span(codes)));
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (weights[i] == 0) {
      ++zeros;
      ASSERT_EQ(codes[i], 0) << i;
    }
  EXPECT_EQ(zeros, weights.size() / 2);
  // Slices leave, the rest is stored in four bits with errors compensated, and both go on: generation and export.
  done({"compress", "run", "--out", "small", "--prune", "neurons:0.5", "--weights", "int4", "--decode", "4"});
  const io::CheckpointReader small(folder() / "small" / "checkpoints" / step_name(0));
  EXPECT_EQ(small.at(name + "/codes").type, (TensorType{DType::u8, {128, 32}}));
  done({"generate", "--from", "small", "--prompt", "a", "--tokens", "4"});
  done({"export", "small", "hf"});
  EXPECT_NEAR(
      nlohmann::json::parse(
          done({"eval", "--from", "hf", "--json", "--data.text=text.txt", "--data.tokenizer=bytes"}).out)["loss"]
          .get<double>(),
      loss("small"), 1e-3);
  // A run that was pruned while it trained stays so.
  done(with({"train", "tiny.toml", "--output.dir=trained", "--model.width=64", "--model.vocab=256"}, kPrune));
  done({"compress", "trained", "--out", "trained-small", "--weights", "int8", "--decode", "0"});
  EXPECT_NEAR(loss("trained-small"), loss("trained"), 5e-3);
}

// A folder of transformers' is made smaller as the run is of which it was exported.
TEST_F(Smaller, AHuggingFaceFolderIsCompressed) {
  done({"train", "tiny.toml", "--output.dir=run", "--model.family=llama", "--model.width=64", "--model.heads=4",
        "--model.vocab=256"});
  done({"export", "run", "hf"});
  const std::vector<std::string> data = {"--data.text=text.txt", "--data.tokenizer=bytes", "--decode", "4"};
  const std::vector<std::vector<std::string>> ways = {{"--weights", "int8"},
                                                      {"--weights", "int4:32", "--calibrate", "0"},
                                                      {"--prune", "neurons:0.5,heads:0.5"},
                                                      {"--prune", "2:4"}};
  for (const std::vector<std::string>& way : ways) {
    SCOPED_TRACE(way[1]);
    const Finished f = done(with(with({"compress", "hf", "--out", "folder", "--overwrite"}, way), data));
    for (const char* part : {"before ", "after ", "perplexity", "tokens/s"}) expect_part(f.out, part);
    done(with({"compress", "run", "--out", "small", "--decode", "0", "--overwrite"}, way));
    EXPECT_EQ(state("folder", 0), state("small", 0));
    done({"generate", "--from", "folder", "--prompt", "a", "--tokens", "4"});
  }
}

}  // namespace
}  // namespace trireme::testing
