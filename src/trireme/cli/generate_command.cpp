#include <nlohmann/json.hpp>

#include <charconv>
#include <cstdio>

#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/processes.h"
#include "trireme/cli/training_settings.h"
#include "trireme/cli/validators.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/sample_text.h"
#include "trireme/train/trained_model.h"

namespace trireme::cli {
namespace {

struct GenerateArguments {
  std::string from;
  std::string prompt;
  std::string prompt_tokens;
  train::SampleOptions sample{.tokens = 200};
  std::optional<std::int64_t> step;
  bool past_end = false;
  bool json = false;
};

std::vector<std::int32_t> prompt_tokens(const std::string& text) {
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

std::vector<std::int32_t> prompt_of(const GenerateArguments& a, const data::Tokenizer* tokenizer) {
  if (!a.prompt_tokens.empty() && !a.prompt.empty())
    refuse("--prompt and --prompt-tokens both say what to continue; give one of them");
  if (!a.prompt_tokens.empty()) return prompt_tokens(a.prompt_tokens);
  if (a.prompt.empty()) refuse("give --prompt TEXT or --prompt-tokens 1,2,3");
  if (tokenizer == nullptr)
    refuse("--from {}: there is no tokenizer: give --prompt-tokens 1,2,3, or --data.tokenizer=FILE with the one used",
           a.from);
  return tokenizer->encode(a.prompt, data::Specials::add);
}

void print_json(const std::vector<std::int32_t>& made, const data::Tokenizer* tokenizer) {
  nlohmann::ordered_json o;
  if (tokenizer != nullptr) o["text"] = tokenizer->decode(made, data::Specials::none);
  o["tokens"] = made;
  fmt::print("{}\n", o.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int generate(const Context& context, GenerateArguments a, const train::Config& config, comm::Communicator* world) {
  const std::shared_ptr<const data::Tokenizer> tokenizer = train::tokenizer_of(config);
  const std::vector<std::int32_t> prompt = prompt_of(a, tokenizer.get());
  const bool speak = !a.json && a.prompt_tokens.empty();
  if (tokenizer != nullptr && !a.past_end) a.sample.stop = tokenizer->end_of_text();
  if (world != nullptr)
    train::check_same_settings(config,
                               {{"the prompt", fmt::format("[{}]", fmt::join(prompt, ", "))},
                                {"--tokens", std::to_string(a.sample.tokens)},
                                {"--step", a.step ? std::to_string(*a.step) : "not given"},
                                device_fact(config)},
                               *world);
  train::TrainedModel model(config, *context.registry,
                            {.purpose = train::Purpose::generate,
                             .local_ranks = processes_here(),
                             .sequence = static_cast<std::int64_t>(prompt.size()) + a.sample.tokens},
                            a.from, a.step, warn, world);

  std::optional<data::StreamDecoder> stream;
  if (speak) {
    stream.emplace(*tokenizer);
    stream->skip(prompt);
    fmt::print("{}", a.prompt);
  }
  const std::vector<std::int32_t> made =
      train::sample_tokens(model.session(), prompt, a.sample, [&](std::int32_t token) {
        if (!stream) return true;
        fmt::print("{}", stream->push(token));
        // Nobody reads on: stop making more.
        return flush_output();
      });
  if (stream)
    fmt::print("{}\n", stream->finish());
  else if (a.json)
    print_json(made, tokenizer.get());
  else
    fmt::print("{}\n", fmt::join(made, ","));
  return 0;
}

int generate_everywhere(const Context& context, const GenerateArguments& a) {
  train::Config config;
  const auto prepare = [&] {
    const std::vector<std::string> settings = settings_of_use(context, "generate");
    train::check_is_there(a.from, "--from " + a.from);
    config = load_for_use(context, a.from, settings, train::Purpose::generate, launched_processes());
    config.train.batch = config.train.micro_batch = 1;
    return config.parallel.timeout.count;
  };
  return on_all_processes(prepare, [&](comm::Communicator* world) { return generate(context, a, config, world); });
}

}  // namespace

void add_generate(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Sample from a trained model");
  command->add_option("--from", arguments->from, "A run folder, or a Hugging Face folder")->required();
  command->add_option("--prompt", arguments->prompt, "Text to continue");
  command->add_option("--prompt-tokens", arguments->prompt_tokens, "Token ids to continue: 1,2,3; ids come out");
  command->add_option("--tokens", arguments->sample.tokens, "Number of new tokens")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  train::Sampling& sampling = arguments->sample.sampling;
  command->add_option("--temperature", sampling.temperature, "Sampling temperature; 0: greedy")->check(not_negative());
  command->add_option("--top-k", sampling.top_k, "Sample among the K most likely tokens; 0: among all")
      ->check(not_negative());
  command
      ->add_option("--top-p", sampling.top_p,
                   "Nucleus sampling: among the fewest tokens that together have this probability")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", arguments->sample.seed, "Random seed of the sampling");
  command->add_option("--step", arguments->step, "The checkpoint of this step instead of the newest")
      ->check(not_negative());
  command->add_flag("--past-end", arguments->past_end, "Continue after the end-of-text token");
  command->add_flag("--json", arguments->json, "One object with text and tokens");
  command->footer(
      "\nExamples:\n"
      "  trireme generate --from runs/latest --prompt 'template<'\n"
      "  trireme generate --from runs/quickstart --prompt '#include' --tokens 400 --temperature 0\n"
      "  trireme generate --from gpt2/ --prompt 'The trireme was' --top-k 40 --top-p 0.95\n"
      "  trireme generate --from runs/latest --prompt-tokens 1,2,3 --json\n"
      "  mpirun -n 4 trireme generate --from runs/latest --prompt 'A' --parallel.mesh=pp=2,tp=2\n");
  command->callback([&context, arguments] {
    context.run = [&context, arguments] { return generate_everywhere(context, *arguments); };
  });
}

}  // namespace trireme::cli
