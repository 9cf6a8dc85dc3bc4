#include <nlohmann/json.hpp>

#include <charconv>
#include <cstdio>

#include "trireme/cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/byte_tokenizer.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/sample_text.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

struct GenerateArguments {
  std::string from;
  std::string prompt;
  std::string prompt_tokens;
  train::SampleOptions sample{.tokens = 200, .temperature = 0.8, .seed = 1};
  std::int64_t step = -1;
  bool json = false;
};

std::vector<std::int32_t> parse_tokens(const std::string& text) {
  std::vector<std::int32_t> tokens;
  for (const std::string& part : split(text, ',')) {
    const std::string_view number = trim(part);
    const char* end = number.data() + number.size();
    const auto [rest, error] = std::from_chars(number.data(), end, tokens.emplace_back());
    if (error != std::errc() || rest != end)
      refuse("--prompt-tokens takes numbers separated by commas, such as 1,2,3, got '{}'", part);
  }
  return tokens;
}

int generate(Context& context, const GenerateArguments& a) {
  if (!std::filesystem::exists(a.from)) refuse("--from {}: there is no such folder", a.from);
  if (!train::holds_run(a.from)) refuse("--from {}: there is no run in that folder", a.from);
  train::Config config = train::load_config(a.from, context.overrides, context.registry->models);
  config.train.batch = config.train.micro_batch = 1;
  const bool bytes = config.data.tokenizer == "bytes" && config.data.tokens.empty();
  train::resolve_model(config, config.model.vocab, context.registry->models);
  const train::Compiled compiled =
      train::compile(config, *context.registry, {.threads = train::compute_threads(config)});
  train::Session session(compiled, train::compute_threads(config));
  const LogSink log = [](LogLevel, const std::string& text) { fmt::print(stderr, "warning: {}\n", text); };
  const auto newest = a.step >= 0 ? std::optional(a.step) : train::newest_checkpoint(a.from, log);
  if (!newest) refuse("--from {}: the run has no checkpoint", a.from);
  train::load_checkpoint(a.from, *newest, session);

  const data::ByteTokenizer tokenizer;
  if (!bytes && a.prompt_tokens.empty()) refuse("the run was trained on token files: give --prompt-tokens 1,2,3");
  if (a.prompt_tokens.empty() && a.prompt.empty()) refuse("give --prompt TEXT or --prompt-tokens 1,2,3");
  const std::vector<std::int32_t> prompt =
      a.prompt_tokens.empty() ? tokenizer.encode(a.prompt) : parse_tokens(a.prompt_tokens);
  const bool speak = !a.json && a.prompt_tokens.empty();
  if (speak) fmt::print("{}", a.prompt);
  const std::vector<std::int32_t> made = train::sample_tokens(session, prompt, a.sample, [&](std::int32_t token) {
    if (speak) {
      fmt::print("{}", tokenizer.decode(std::vector<std::int32_t>{token}));
      std::fflush(stdout);
    }
    return true;
  });
  if (a.json) {
    nlohmann::ordered_json o;
    if (bytes) o["text"] = tokenizer.decode(made);
    o["tokens"] = made;
    fmt::print("{}\n", o.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}\n", speak ? "" : fmt::format("{}", fmt::join(made, ",")));
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Sample from a trained model");
  command->add_option("--from", arguments->from, "A run folder")->required();
  command->add_option("--prompt", arguments->prompt, "Text to continue");
  command->add_option("--prompt-tokens", arguments->prompt_tokens, "Token ids to continue: 1,2,3; ids come out");
  command->add_option("--tokens", arguments->sample.tokens, "How many tokens to make")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  command->add_option("--temperature", arguments->sample.temperature, "0: the likeliest token each time")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", arguments->sample.seed, "Of the sampling");
  command->add_option("--step", arguments->step, "The checkpoint of this step instead of the newest");
  command->add_flag("--json", arguments->json, "One object with text and tokens");
  command->footer(
      "\nExamples:\n"
      "  trireme generate --from runs/latest --prompt 'template<'\n"
      "  trireme generate --from runs/quickstart --prompt '#include' --tokens 400 --temperature 0\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return generate(context, *arguments); }; });
}

}  // namespace trireme::cli
