#include <cmath>

#include "trireme/cli/commands.h"
#include "trireme/cli/validators.h"
#include "trireme/compress/measure.h"
#include "trireme/compress/quantize.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/open_data.h"
#include "trireme/train/quantization.h"

namespace trireme::cli {
namespace {

struct CompressArguments {
  std::string from;
  std::string out;
  std::string weights;
  std::vector<std::string> bits;
  std::optional<std::int64_t> step;
  std::int64_t calibrate = -1;
  std::int64_t batches = 0;
  std::int64_t decode = 64;
  bool overwrite = false;
};

void warn(LogLevel, const std::string& text) { fmt::print(stderr, "warning: {}\n", text); }

// The model's data, where it names any.
data::Data data_of(const train::Config& config, const train::Registry& registry) {
  train::Config own = config;
  const bool any = !own.data.text.empty() || !own.data.tokens.empty();
  if (!any) return {};
  return train::open_data(own, registry.models);
}

std::string row(const char* name, const compress::Figures& f, std::optional<double> speed) {
  std::string text = fmt::format("{:<8}{:>12} of weights", name, format_bytes(f.bytes));
  if (f.loss) text += fmt::format("   loss {:.4f}   perplexity {:.3f}", *f.loss, std::exp(*f.loss));
  if (speed) text += fmt::format("   decode {:.1f} tokens/s", *speed);
  return text;
}

void print_layers(const CompressArguments& a, const std::vector<compress::QuantizedLayer>& layers) {
  double worst = 0, nearest = 0, compensated = 0;
  std::size_t calibrated = 0;
  for (const compress::QuantizedLayer& layer : layers) {
    worst = std::max(worst, layer.error);
    nearest += layer.nearest_output_error;
    compensated += layer.output_error;
    calibrated += layer.calibrated ? 1 : 0;
  }
  fmt::print("weights {} of {} stored as {}; largest relative error {:.2f}%\n", layers.size(), a.from, a.weights,
             100 * worst);
  if (calibrated == 0) return;
  const auto share = static_cast<double>(calibrated);
  fmt::print("outputs {} layers compensated: mean relative error {:.2f}%, rounded to nearest {:.2f}%\n", calibrated,
             100 * compensated / share, 100 * nearest / share);
}

int compress_once(const Context& context, const CompressArguments& a) {
  if (a.weights.empty()) refuse("nothing to do: give --weights int8, int4 or int4:64");
  compress::check_target(a.out, a.overwrite);
  const train::Registry& registry = *context.registry;
  compress::Model model = compress::load_model(a.from, context.overrides, registry, a.step, warn);
  compress::Model smaller = model;
  train::apply_setting(smaller.config, "memory.weights=" + a.weights, registry.models);
  for (const std::string& rule : a.bits) smaller.config.memory.weight_bits.push_back(rule);
  train::check(smaller.config, registry.models);
  const data::Data data = data_of(model.config, registry);

  // Eight bits need no calibration.
  const bool few_bits = train::stored_weights(smaller.config)->format.bits < 8;
  if (a.calibrate > 0 && !data.train)
    refuse("--calibrate {} needs rows to run the model on: name them with --data.text or --data.tokens", a.calibrate);
  compress::QuantizeOptions quantize;
  if (a.calibrate != 0 && few_bits) quantize.calibration = data.train.get();
  if (a.calibrate > 0) quantize.rows = a.calibrate;
  print_layers(a, compress::quantize_weights(smaller, registry, quantize));

  const compress::MeasureOptions options{.held_out = data.eval.get(), .samples = 8 * a.batches};
  const compress::Figures before = compress::measure(model, registry, options);
  const compress::Figures after = compress::measure(smaller, registry, options);
  std::optional<std::pair<double, double>> speed;
  if (a.decode > 0) speed = compress::decode_speeds(model, smaller, registry, a.decode);
  fmt::print("{}\n", row("before", before, speed ? std::optional(speed->first) : std::nullopt));
  fmt::print("{}\n", row("after", after, speed ? std::optional(speed->second) : std::nullopt));
  std::string change =
      fmt::format("change  {:.2f}× smaller", static_cast<double>(before.bytes) / static_cast<double>(after.bytes));
  if (before.loss) change += fmt::format(", perplexity {:+.2f}%", 100 * (std::exp(*after.loss - *before.loss) - 1));
  if (speed) change += fmt::format(", decode {:.2f}× as fast", speed->second / speed->first);
  fmt::print("{}\n", change);
  compress::save_model(smaller, a.out, {.from = a.from, .command = context.command_line, .overwrite = a.overwrite},
                       registry);
  fmt::print("run     {}\n", a.out);
  return 0;
}

}  // namespace

void add_compress(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<CompressArguments>();
  CLI::App* command = app.add_subcommand("compress", "Make a trained model smaller");
  command->add_option("from", arguments->from, "A run folder, or a Hugging Face folder")->required();
  command->add_option("--out", arguments->out, "The run folder to make")->required();
  command->add_option("--weights", arguments->weights,
                      "Quantize linear layers: int8, int4 (a scale per output channel), int8:GROUP, int4:GROUP");
  command->add_option("--bits", arguments->bits,
                      "Bits of some weights by name: 'blocks.0.*=8', '*.down.weight=4:64', 'wte.*=full'");
  command
      ->add_option("--calibrate", arguments->calibrate,
                   "Rows of training data on which errors of 4-bit weights are compensated; 0: round to nearest; "
                   "default 128 where the model has data")
      ->check(not_negative());
  command->add_option("--step", arguments->step, "The checkpoint of this step instead of the newest")
      ->check(not_negative());
  command->add_option("--batches", arguments->batches, "Maximum batches of 8 held-out rows for the loss; 0: all")
      ->check(not_negative());
  command->add_option("--decode", arguments->decode, "Tokens to time decoding with; 0: do not")->check(not_negative());
  command->add_flag("--overwrite", arguments->overwrite, "Replace a run that is there");
  command->footer(
      "\nExamples:\n"
      "  trireme compress runs/latest --out runs/small --weights int8\n"
      "  trireme compress gpt2/ --out runs/gpt2-int4 --weights int4:64 --bits 'blocks.0.*=8' --data.text=book.txt\n"
      "  trireme generate --from runs/small --prompt 'template<'\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return compress_once(context, *arguments); }; });
}

}  // namespace trireme::cli
