// What a run says about itself, before and while it trains.
#include <gtest/gtest.h>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class Shown : public Program {};

// The line about the plan names all that makes the step another one.
TEST_F(Shown, ThePlanNamesWhatChangesTheStep) {
  done({"train", "tiny.toml", "--output.dir=teacher", "--train.steps=1"});
  const struct {
    std::vector<std::string> keys;
    std::string words;
  } cases[] = {
      {{"--parallel.mesh=dp=2", "--parallel.compress=int8"}, ", gradients compressed by int8\n"},
      {{"--parallel.mesh=dp=2", "--parallel.compress=int8", "--parallel.error_feedback=false"},
       ", gradients compressed by int8 without error feedback\n"},
      {{"--parallel.mesh=dp=2", "--train.optimizer=sgd", "--parallel.compress=topk:0.1", "--parallel.compress_warmup=3",
        "--parallel.momentum_masking"},
       ", gradients compressed by topk:0.1 after 3 steps with momentum masking\n"},
      {{"--parallel.mesh=tp=2", "--parallel.sequence", "--parallel.async_tp"}, ", sequence parallelism, async_tp\n"},
      {{"--parallel.mesh=pp=2", "--model.layers=2", "--parallel.stage_dtype=bf16"}, ", bf16 between stages\n"},
      {{"--parallel.mesh=tp=2", "--parallel.sharding.*.up.weight=out:tp"}, ", 1 sharding annotation\n"},
      {{"--parallel.mesh=dp=2", "--parallel.overlap=false", "--parallel.allreduce=ring", "--parallel.bucket=64KiB"},
       ", buckets of 64.0 KiB, communication not overlapped, all-reduce ring\n"},
      {{"--parallel.mesh=dp=2", "--runtime.link=1GB/s,20us"}, ", emulated link 1GB/s,20us\n"},
      {{"--train.quantize=int8"}, ", weights rounded as int8\n"},
      {{"--prune.method=magnitude", "--prune.begin=2", "--prune.end=4"},
       ", magnitude pruning to 50% zeros (unstructured, gradual)\n"},
      {{"--distil.teacher=teacher"}, ", taught by teacher\n"},
      {{"--memory.remat=full", "--memory.limit=1GiB"}, ", remat full, at most 1.0 GiB\n"},
  };
  for (const auto& [keys, words] : cases) {
    std::vector<std::string> command = {"train", "tiny.toml", "--dry-run"};
    command.insert(command.end(), keys.begin(), keys.end());
    const std::string out = done(command).out;
    const std::size_t at = out.find("\nplan    ");
    ASSERT_NE(at, std::string::npos) << out;
    expect_part(out.substr(at + 1, out.find('\n', at + 1) - at), words);
  }
}

// Of a family over another's configuration one is shown what stayed, what is the family's own again, and what it has no
// use for.
TEST_F(Shown, AnotherFamilyListsWhatItKeeps) {
  const auto of = [&](const std::vector<std::string>& words) {
    std::vector<std::string> command = {"train"};
    command.insert(command.end(), words.begin(), words.end());
    command.emplace_back("--dry-run");
    const Finished f = done(command);
    expect_none(f.err, "warning");
    return f.out;
  };
  expect_part(of({"tiny.toml", "--model.family=llama"}),
              "        llama in the place of gpt2; kept: layers = 1, width = 16, heads = 2, context = 16\n");
  // A run's own file has what its family had chosen.
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=1", "--model.dropout=0.1", "--model.width=32"});
  const std::string over_run = of({"run", "--output.dir=other", "--model.family=llama"});
  expect_parts(over_run,
               {"llama in the place of gpt2; kept: layers = 1, width = 32, heads = 2, context = 16, vocab = 256",
                "; by the family's own rule: ffn", "; left out: dropout = 0.1\n"});
  const auto parameters = [](const std::string& out) {
    const std::size_t end = out.find(" parameters\n");
    return out.substr(out.rfind(' ', end - 1), end - out.rfind(' ', end - 1));
  };
  EXPECT_EQ(parameters(over_run), parameters(of({"tiny.toml", "--model.family=llama", "--model.width=32"})));
  // What the command line names is its own.
  expect_part(of({"run", "--output.dir=other", "--model.family=llama", "--model.ffn=64", "--model.layers=2"}),
              "; kept: width = 32, heads = 2, context = 16, vocab = 256; left out: dropout = 0.1\n");
  expect_part(of({"--model.family=gpt2", "--data.text=text.txt"}),
              "gpt2 in the place of llama; kept: layers = 4, width = 128");
  expect_part(of({"llama-tiny", "--model.family=gpt2", "--data.text=text.txt"}), "; left out: kv_heads = 2\n");
  expect_none(of({"run", "--output.dir=other", "--model.family=gpt2"}), "in the place of");
}

}  // namespace
}  // namespace trireme::testing
