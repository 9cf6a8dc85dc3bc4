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

}  // namespace
}  // namespace trireme::testing
