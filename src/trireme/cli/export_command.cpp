#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/validators.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/convert.h"
#include "trireme/train/gguf.h"

namespace trireme::cli {
namespace {

struct ExportArguments {
  std::string run;
  std::string folder;
  std::int64_t step = -1;
  std::optional<std::string> dtype;
  std::string type;
  std::string max_shard = "5GB";
  bool overwrite = false;
};

// Names of tensors, those of the blocks as one: "blk.*.attn_q.weight".
std::vector<std::string> patterns_of(const std::vector<std::string>& names) {
  std::vector<std::string> patterns;
  for (std::string name : names) {
    if (name.starts_with("blk.")) name.replace(4, name.find('.', 4) - 4, "*");
    if (std::find(patterns.begin(), patterns.end(), name) == patterns.end()) patterns.push_back(std::move(name));
  }
  return patterns;
}

int export_file(const Context& context, const ExportArguments& a) {
  train::GgufExportOptions options{.overwrite = a.overwrite, .log = warn};
  if (!a.type.empty()) options.type = *io::parse_ggml_type(a.type);
  if (a.step >= 0) options.step = a.step;
  const train::GgufExported done = train::export_gguf(a.run, a.folder, options, context.registry->models);
  const bool mixed = done.matrices.size() > 1;
  fmt::print("weights {} parameters of step {} as {}{}: {} ({} B)\n", format_count(done.parameters), done.step,
             io::name_of(done.type), mixed ? " where that can be" : "", format_bytes(done.bytes),
             format_count(done.bytes));
  if (mixed)
    for (const train::GgufExported::Share& share : done.matrices)
      fmt::print("        {:<5} {} of {}{}{}\n", io::name_of(share.type), format_bytes(share.bytes),
                 share.names.empty() ? "no matrix" : fmt::format("{}", fmt::join(patterns_of(share.names), ", ")),
                 share.why.empty() ? "" : ": ", share.why);
  fmt::print("file    {}{}\n", a.folder, done.tokenizer ? "" : "   (without tokenizer)");
  return 0;
}

int export_once(const Context& context, const ExportArguments& a) {
  if (!context.overrides.empty())
    refuse("export takes the run as it is: --{} has no place here", context.overrides.front());
  if (train::is_gguf(a.folder)) {
    if (a.dtype)
      refuse(
          "--dtype {} is for Hugging Face folders, and {} is a GGUF file, which --type is for; the nearest is --type "
          "{}",
          *a.dtype, a.folder, *a.dtype);
    return export_file(context, a);
  }
  if (!a.type.empty())
    refuse("--type {} is for GGUF files, and {} is a Hugging Face folder, which --dtype is for", a.type, a.folder);
  train::ExportOptions options{.dtype = *parse_dtype(a.dtype.value_or("f32")), .overwrite = a.overwrite};
  if (a.step >= 0) options.step = a.step;
  const auto most = parse_bytes(a.max_shard);
  if (!most || *most == 0) refuse("--max-shard must be a size such as 5GB or 200MiB, got {}", a.max_shard);
  options.max_shard = *most;
  options.log = warn;
  const train::Exported done = train::export_huggingface(a.run, a.folder, options, context.registry->models);
  fmt::print("weights {} parameters of step {} as {}: {} in {} file{}\n", format_count(done.parameters), done.step,
             a.dtype.value_or("f32"), format_bytes(done.bytes), done.files.size(), done.files.size() == 1 ? "" : "s");
  fmt::print("folder  {}\n", a.folder);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command =
      app.add_subcommand("export", "A run's weights as a folder that transformers loads, or a GGUF file");
  command->add_option("run", arguments->run, "A run folder of a GPT-2 or Llama")->required();
  command->add_option("folder", arguments->folder, "The Hugging Face folder to make, or FILE.gguf")->required();
  command->add_option("--step", arguments->step, "The checkpoint of this step instead of the newest")
      ->check(not_negative());
  command->add_option("--dtype", arguments->dtype, "Type of the weights: f32 (default), bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--type", arguments->type, "GGUF: type of the matrices: f32, f16 (default), q8_0, q4_0 or q4_k")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"}));
  command->add_option("--max-shard", arguments->max_shard, "Maximum size of a file of weights");
  command->add_flag("--overwrite", arguments->overwrite, "Replace a Hugging Face folder or file that is there");
  command->footer(
      "\nExamples:\n"
      "  trireme export runs/latest my-model\n"
      "  trireme export runs/gpt2 my-model --step 1000 --dtype bf16 --max-shard 2GB --overwrite\n"
      "  trireme export runs/latest my-model.gguf --type q8_0\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return export_once(context, *arguments); }; });
}

}  // namespace trireme::cli
