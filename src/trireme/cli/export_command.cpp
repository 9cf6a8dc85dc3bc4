#include "trireme/cli/commands.h"
#include "trireme/cli/validators.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/convert.h"

namespace trireme::cli {
namespace {

struct ExportArguments {
  std::string run;
  std::string folder;
  std::int64_t step = -1;
  std::string dtype = "f32";
  std::string max_shard = "5GB";
  bool overwrite = false;
};

int export_once(const Context& context, const ExportArguments& a) {
  if (!context.overrides.empty())
    refuse("export takes the run as it is: --{} has no place here", context.overrides.front());
  train::ExportOptions options{.dtype = *parse_dtype(a.dtype), .overwrite = a.overwrite};
  if (a.step >= 0) options.step = a.step;
  const auto most = parse_bytes(a.max_shard);
  if (!most || *most == 0) refuse("--max-shard must be a size such as 5GB or 200MiB, got {}", a.max_shard);
  options.max_shard = *most;
  options.log = [](LogLevel, const std::string& text) { fmt::print(stderr, "warning: {}\n", text); };
  const train::Exported done = train::export_huggingface(a.run, a.folder, options, context.registry->models);
  fmt::print("weights {} parameters of step {} as {}: {} in {} file{}\n", format_count(done.parameters), done.step,
             a.dtype, format_bytes(done.bytes), done.files.size(), done.files.size() == 1 ? "" : "s");
  fmt::print("folder  {}\n", a.folder);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand("export", "A run's weights as a folder that transformers loads");
  command->add_option("run", arguments->run, "A run folder of a GPT-2 or Llama")->required();
  command->add_option("folder", arguments->folder, "The Hugging Face folder to make")->required();
  command->add_option("--step", arguments->step, "The checkpoint of this step instead of the newest")
      ->check(not_negative());
  command->add_option("--dtype", arguments->dtype, "Type of the weights: f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--max-shard", arguments->max_shard, "Maximum size of a file of weights");
  command->add_flag("--overwrite", arguments->overwrite, "Replace a Hugging Face folder that is there");
  command->footer(
      "\nExamples:\n"
      "  trireme export runs/latest my-model\n"
      "  trireme export runs/gpt2 my-model --step 1000 --dtype bf16 --max-shard 2GB --overwrite\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return export_once(context, *arguments); }; });
}

}  // namespace trireme::cli
