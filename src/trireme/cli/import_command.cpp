#include "trireme/cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/convert.h"
#include "trireme/train/gguf.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/run_folder.h"

namespace trireme::cli {
namespace {

struct ImportArguments {
  std::string folder;
  std::string run;
  bool overwrite = false;
};

void print_model(const train::Config& config, const train::Imported& done, const ImportArguments& a) {
  fmt::print("model   {} {}×{}, {} parameters, from {}\n", config.model.family, config.model.layers, config.model.width,
             format_count(done.parameters), a.folder);
  fmt::print("run     {}   (config, checkpoint of step 0{})\n", a.run, done.tokenizer ? ", tokenizer" : "");
}

int import_once(const Context& context, const ImportArguments& a) {
  train::ImportOptions options{.overwrite = a.overwrite, .command = context.command_line};
  options.log = [](LogLevel, const std::string& text) { fmt::print(stderr, "{}\n", text); };
  if (train::is_gguf(a.folder)) {
    const train::GgufImported done =
        train::import_gguf(a.folder, a.run, context.overrides, options, context.registry->models);
    print_model(done.config, done.counts, a);
    return 0;
  }
  if (train::holds_run(a.folder))
    refuse("{} holds a run, which the other commands take as it is{}", a.folder,
           std::filesystem::exists(std::filesystem::path(a.folder) / "config.json")
               ? "; there is a config.json too: move what is of the Hugging Face model to a folder of its own"
               : "");
  if (!train::is_huggingface_folder(a.folder))
    refuse("{}: not a Hugging Face folder ({})", a.folder,
           std::filesystem::exists(a.folder) ? "no config.json" : "there is no such folder");
  const train::Config config = train::load_config(a.folder, context.overrides, context.registry->models);
  const train::Imported done = train::import_huggingface(config, a.run, options, context.registry->models);
  print_model(config, done, a);
  return 0;
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App* command =
      app.add_subcommand("import", "A Hugging Face folder or GGUF file as a run, to train on or generate from");
  command
      ->add_option("folder", arguments->folder, "config.json and safetensors of a GPT-2 or Llama, or FILE.gguf of one")
      ->required();
  command->add_option("run", arguments->run, "The run folder to make")->required();
  command->add_flag("--overwrite", arguments->overwrite, "Replace a run that is there");
  command->footer(
      "\nExamples:\n"
      "  trireme import gpt2 runs/gpt2 --model.context=256 --data.tokens=mine.bin\n"
      "  trireme train runs/gpt2 --resume\n"
      "  trireme import my-model.gguf runs/mine\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return import_once(context, *arguments); }; });
}

}  // namespace trireme::cli
