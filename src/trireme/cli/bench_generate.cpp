#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>

#include "trireme/cli/bench.h"
#include "trireme/cli/training_settings.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/planner/machine.h"
#include "trireme/train/sample_text.h"
#include "trireme/train/trained_model.h"

namespace trireme::cli {
namespace {

struct GenerateBenchArguments {
  std::string from;
  std::int64_t prompt = 32;
  std::int64_t tokens = 64;
  int repeats = 5;
  bool json = false;
};

int bench_generate(Context& context, const GenerateBenchArguments& a) {
  train::check_is_there(a.from, "--from " + a.from);
  train::Config config =
      load_for_use(context, a.from, settings_of_use(context, "bench generate"), train::Purpose::generate);
  config.train.batch = config.train.micro_batch = 1;
  train::TrainedModel model(config, *context.registry,
                            {.purpose = train::Purpose::generate, .sequence = a.prompt + a.tokens}, a.from,
                            std::nullopt, {});
  if (a.prompt + a.tokens > model.compiled().cache_rows)
    refuse("--prompt {} and --tokens {} are more than the model's context of {}", a.prompt, a.tokens,
           model.compiled().cache_rows);
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < a.prompt; ++i)
    prompt.push_back(static_cast<std::int32_t>((i * 7919 + 13) % model.config().model.vocab));

  using Clock = std::chrono::steady_clock;
  std::vector<double> first_ms;
  std::vector<double> token_ms;
  std::vector<std::int32_t> made;
  for (int r = 0; r < a.repeats + 1; ++r) {
    const auto begin = Clock::now();
    auto first = begin;
    made = train::sample_tokens(model.session(), prompt, {.tokens = a.tokens, .sampling = {.temperature = 0}},
                                [&](std::int32_t) {
                                  if (first == begin) first = Clock::now();
                                  return true;
                                });
    if (r == 0) continue;  // pages and caches are cold
    first_ms.push_back(std::chrono::duration<double, std::milli>(first - begin).count());
    token_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - first).count() /
                       static_cast<double>(a.tokens - 1));
  }
  const double first = median(first_ms), each = median(token_ms);
  // A weight with a copy in low precision is read as that.
  std::size_t weights = 0;
  const std::vector<ir::State>& states = model.compiled().roles.front().module.states;
  for (const ir::State& state : states)
    if (state.category == ir::Category::weights &&
        std::none_of(states.begin(), states.end(), [&](const ir::State& s) { return s.derived_from == state.name; }))
      weights += state.type.bytes();
  if (a.json) {
    const nlohmann::ordered_json o = {{"first_token_ms", first},
                                      {"token_ms", each},
                                      {"tokens_per_s", 1e3 / each},
                                      {"peak_bytes", model.compiled().arena_bytes()},
                                      {"tokens", made}};
    fmt::print("{}\n", o.dump());
    return 0;
  }
  fmt::print("prompt  {} tokens in {:.1f} ms ({:.0f} tokens/s)\n", a.prompt, first,
             static_cast<double>(a.prompt) / first * 1e3);
  fmt::print("decode  {:.2f} ms a token, median of {} × {} ({:.1f} tokens/s)\n", each, a.repeats, a.tokens - 1,
             1e3 / each);
  fmt::print("limit   each token reads {} of weights once: {:.1f} GB/s\n", format_bytes(weights),
             static_cast<double>(weights) / each / 1e6);
  fmt::print("memory  {} B planned; measured: {}\n", format_count(model.compiled().arena_bytes()),
             planner::whole_use(model.compiled().device()));
  return 0;
}

}  // namespace

void add_bench_generate(CLI::App& bench, Context& context) {
  auto arguments = std::make_shared<GenerateBenchArguments>();
  CLI::App* command = bench.add_subcommand("generate", "Time the prompt and each token that follows");
  command->add_option("--from", arguments->from, "A run folder, or a Hugging Face folder")->required();
  command->add_option("--prompt", arguments->prompt, "Tokens of the prompt")->check(CLI::Range(1, 1 << 20));
  command->add_option("--tokens", arguments->tokens, "Tokens to make")->check(CLI::Range(2, 1 << 20));
  command->add_option("--repeats", arguments->repeats, "Repetitions, after one of warmup")->check(CLI::Range(1, 1000));
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer("\nExample:\n  trireme bench generate --from gpt2/ --prompt 32 --tokens 64\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return bench_generate(context, *arguments); }; });
}

}  // namespace trireme::cli
