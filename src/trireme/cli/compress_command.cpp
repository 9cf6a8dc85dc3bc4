#include <array>
#include <cmath>
#include <filesystem>
#include <functional>

#include "trireme/cli/commands.h"
#include "trireme/cli/compress_distil.h"
#include "trireme/cli/output.h"
#include "trireme/cli/search.h"
#include "trireme/cli/training_settings.h"
#include "trireme/cli/validators.h"
#include "trireme/cli/work_progress.h"
#include "trireme/compress/measure.h"
#include "trireme/compress/prune.h"
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
  std::string activations;
  std::string kv_cache;
  std::string prune;
  std::string search;
  bool distil = false;
  bool random = false;
  bool sensitivity = false;
  std::vector<std::string> bits;
  std::optional<std::int64_t> step;
  std::int64_t calibrate = -1;
  std::int64_t batches = 0;
  std::int64_t decode = 64;
  bool overwrite = false;
};

// The model's data, where it names any.
data::Data data_of(const train::Config& config, const train::Registry& registry) {
  train::Config own = config;
  const bool any = !own.data.text.empty() || !own.data.tokens.empty() || !own.data.images.empty();
  if (!any) return {};
  return train::open_data(own, registry.models);
}

std::string row(const char* name, const compress::Figures& f, std::optional<double> speed) {
  std::string text = fmt::format("{:<8}{:>12} of weights", name, format_bytes(f.bytes));
  if (f.loss) text += fmt::format("   loss {:.4f}", *f.loss);
  if (f.accuracy) text += fmt::format("   accuracy {:.2f}%", 100 * *f.accuracy);
  if (f.loss && !f.accuracy) text += fmt::format("   perplexity {}", perplexity_text(*f.loss, 3));
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

void quantize_model(compress::Model& smaller, const data::Data& data, const CompressArguments& a,
                    const train::Registry& registry) {
  // Eight bits need no calibration.
  const bool few_bits = train::stored_weights(smaller.config)->format.bits < 8;
  if (a.calibrate > 0 && !data.train)
    refuse("--calibrate {} needs rows to run the model on: name them with --data.text or --data.tokens", a.calibrate);
  compress::QuantizeOptions quantize;
  if (a.calibrate != 0 && few_bits) quantize.calibration = data.train.get();
  if (smaller.config.memory.linear_inputs == train::LinearInputs::int8) {
    if (a.calibrate == 0)
      refuse("--activations {} needs rows to find the ranges on, and --calibrate is 0; 128 is the default",
             a.activations);
    if (!data.train)
      refuse("--activations {} needs rows to find the ranges on: name them with --data.text or --data.tokens",
             a.activations);
    quantize.ranges = data.train.get();
  }
  if (a.calibrate > 0) quantize.rows = a.calibrate;
  print_layers(a, compress::quantize_weights(smaller, registry, quantize));
}

// The held-out loss of a model, for choices between several; empty: nothing is held out.
std::function<double(const compress::Model&)> loss_of(const data::Data& data, const CompressArguments& a,
                                                      const train::Registry& registry) {
  if (!data.eval) return {};
  return [&data, &a, &registry](const compress::Model& model) {
    return *compress::measure(model, registry, {.held_out = data.eval.get(), .samples = 8 * a.batches}).loss;
  };
}

void prune_model(compress::Model& smaller, const compress::PruneStep& step, const CompressArguments& a,
                 const train::Registry& registry) {
  const data::Data data = data_of(smaller.config, registry);
  const models::ModelConfig before = smaller.config.model;
  compress::PruneOptions options{.random = a.random, .loss = loss_of(data, a, registry)};
  compress::prune(smaller, step, options, registry);
  const models::ModelConfig& now = smaller.config.model;
  std::string change;
  const auto changed = [&](const char* key, std::int64_t from, std::int64_t to) {
    if (from != to) change += fmt::format("{}model.{} {} → {}", change.empty() ? "" : ", ", key, from, to);
  };
  changed("layers", before.layers, now.layers);
  changed("width", before.width, now.width);
  changed("heads", before.heads, now.heads);
  changed("ffn", before.ffn, now.ffn);
  using Pattern = compress::PruneStep::Pattern;
  const bool whole = step.pattern != Pattern::unstructured && step.pattern != Pattern::two_of_four;
  if (whole && change.empty())
    refuse("--prune {} takes out nothing: of {} that share is less than half of one; give a larger share", step.text,
           step.text.substr(0, step.text.find(':')));
  fmt::print("pruned  {}: {}\n", step.text,
             change.empty() ? fmt::format("{:.1f}% of the weights of products are zero; this saves bytes, not time",
                                          100 * compress::sparsity_of(smaller, registry))
                            : change);
}

int print_sensitivity(const compress::Model& model, const CompressArguments& a, const train::Registry& registry) {
  constexpr std::array<double, 4> kSparsities = {0.5, 0.8, 0.9, 0.95};
  const data::Data data = data_of(model.config, registry);
  compress::PruneOptions options{.random = a.random, .loss = loss_of(data, a, registry)};
  if (!options.loss) refuse("--sensitivity needs held-out data: set data.holdout or data.eval");
  const double dense = options.loss(model);
  WorkProgress progress;
  const auto found = compress::sensitivity(
      model, kSparsities, options, registry,
      [&](std::size_t done, std::size_t all) { progress.count("pruning one weight at a time", done, all); });
  progress.finish();
  fmt::print("loss    {:.4f}; how it grows when one weight alone is pruned\n", dense);
  fmt::print("{:<32} {:>12}", "weight", "elements");
  for (const double sparsity : kSparsities) fmt::print(" {:>9.0f}%", 100 * sparsity);
  fmt::print("\n");
  for (const compress::Sensitivity& one : found) {
    fmt::print("{:<32} {:>12}", one.parameter, format_count(static_cast<std::uint64_t>(one.elements)));
    for (const double loss : one.loss) fmt::print(" {:>+10.4f}", loss - dense);
    fmt::print("\n");
  }
  return 0;
}

// Size, loss and decode speed of both.
void compare(const compress::Model& model, const compress::Model& smaller, const data::Data& data,
             const CompressArguments& a, const train::Registry& registry) {
  const compress::MeasureOptions options{.held_out = data.eval.get(), .samples = 8 * a.batches};
  const compress::Figures before = compress::measure(model, registry, options);
  const compress::Figures after = compress::measure(smaller, registry, options);
  std::optional<std::pair<double, double>> speed;
  const bool text = !registry.models.at(model.config.model.family).images;
  if (a.decode > 0 && text) speed = compress::decode_speeds(model, smaller, registry, a.decode);
  fmt::print("{}\n", row("before", before, speed ? std::optional(speed->first) : std::nullopt));
  fmt::print("{}\n", row("after", after, speed ? std::optional(speed->second) : std::nullopt));
  std::string change =
      fmt::format("change  {:.2f}× smaller", static_cast<double>(before.bytes) / static_cast<double>(after.bytes));
  if (before.accuracy)
    change += fmt::format(", accuracy {:+.2f} points", 100 * (*after.accuracy - *before.accuracy));
  else if (before.loss && is_telling(std::exp(*before.loss)) && is_telling(std::exp(*after.loss)))
    change += fmt::format(", perplexity {:+.2f}%", 100 * (std::exp(*after.loss - *before.loss) - 1));
  if (speed) change += fmt::format(", decode {:.2f}× as fast", speed->second / speed->first);
  fmt::print("{}\n", change);
  if (!a.kv_cache.empty())
    fmt::print("cache   {} of keys and values for {} tokens, {} before\n",
               format_bytes(compress::cache_bytes(smaller, registry)), smaller.config.model.context,
               format_bytes(compress::cache_bytes(model, registry)));
}

// Whether the same model is to be kept in fewer bits.
bool stores_less(const CompressArguments& a) {
  return !a.weights.empty() || !a.activations.empty() || !a.kv_cache.empty();
}

int distil_model(const Context& context, const CompressArguments& a) {
  const train::Registry& registry = *context.registry;
  const compress::Model model = compress::load_model(a.from, {}, registry, a.step, warn);
  if (const int code = train_student(context, a.from, a.out, a.overwrite); code != 0) return code;
  const compress::Model student = compress::load_model(a.out, {}, registry, {}, warn);
  compare(model, student, data_of(student.config, registry), a, registry);
  fmt::print("run     {}\n", a.out);
  return 0;
}

int compress_once(const Context& context, const CompressArguments& a) {
  if (a.distil) {
    if (stores_less(a) || !a.prune.empty() || !a.search.empty() || a.sensitivity)
      refuse("--distil trains a student; give --weights and --prune for the run that it makes");
    if (a.out.empty()) refuse("--out: name the run folder of the student");
    std::error_code none;
    if (std::filesystem::equivalent(a.from, a.out, none))
      refuse("--out {} is the teacher; name another folder, which leaves it as it is", a.out);
    return distil_model(context, a);
  }
  if (!a.search.empty()) {
    if (stores_less(a) || !a.prune.empty() || a.sensitivity)
      refuse("--search trains models of other shapes; give --weights and --prune for the one that it finds");
    if (a.out.empty()) refuse("--out: name the folder for the candidates' runs");
    SearchArguments search;
    search.from = a.from;
    search.budget = a.search;
    search.out = a.out;
    search.option = "--search";
    return search_shapes(context, search);
  }
  if (!stores_less(a) && a.prune.empty() && !a.sensitivity)
    refuse(
        "nothing to do: give --weights int8, int4 or int4:64, --kv-cache int8, --prune neurons:0.3, --distil, --search "
        "params=2M, or "
        "--sensitivity");
  if (!a.activations.empty() && a.weights.empty())
    refuse("--activations {} is for layers of quantized weights: give --weights int8 too", a.activations);
  if (a.sensitivity && (stores_less(a) || !a.prune.empty()))
    refuse("--sensitivity looks at a model as it is; give --weights and --prune without it");
  if (!a.sensitivity && a.out.empty()) refuse("--out: name the run folder to make");
  const std::vector<compress::PruneStep> prune =
      a.prune.empty() ? std::vector<compress::PruneStep>{} : compress::parse_prune(a.prune);
  if (!a.sensitivity) compress::check_target(a.from, a.out, a.overwrite);
  const train::Registry& registry = *context.registry;
  compress::Model model = compress::load_model(a.from, settings_of_use(context, "compress"), registry, a.step, warn);
  if (a.sensitivity) return print_sensitivity(model, a, registry);
  compress::Model smaller = model;
  for (const compress::PruneStep& step : prune) prune_model(smaller, step, a, registry);
  if (!a.weights.empty()) train::apply_setting(smaller.config, "memory.weights=" + a.weights, registry.models);
  if (!a.activations.empty())
    train::apply_setting(smaller.config, "memory.linear_inputs=" + a.activations, registry.models);
  if (!a.kv_cache.empty()) train::apply_setting(smaller.config, "memory.kv_cache=" + a.kv_cache, registry.models);
  for (const std::string& rule : a.bits) smaller.config.memory.weight_bits.push_back(rule);
  train::check(smaller.config, registry.models);
  const data::Data data = data_of(model.config, registry);

  if (!a.weights.empty()) quantize_model(smaller, data, a, registry);

  compare(model, smaller, data, a, registry);
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
  command->add_option("--out", arguments->out, "The run folder to make");
  command->add_option("--weights", arguments->weights,
                      "Quantize linear layers: int8, int4 (a scale per output channel), int8:GROUP, int4:GROUP");
  command->add_option("--activations", arguments->activations,
                      "int8: what those layers read is rounded too, with ranges found on training data, and multiplied "
                      "as integers");
  command->add_option("--kv-cache", arguments->kv_cache, "int8: generation keeps keys and values in 8 bits");
  command->add_option(
      "--prune", arguments->prune,
      "Take out a share: heads:0.3, neurons:0.3, channels:0.3, blocks:0.25 (the model becomes smaller and "
      "faster), unstructured:0.8, 2:4 (zeros, stored without them); several by commas");
  command->add_option(
      "--search", arguments->search,
      "Train models of other shapes within a budget, params=2M, bytes=8MiB, step=20ms or decode=1ms, and "
      "find the best; `trireme search` has more options");
  command->add_flag("--distil", arguments->distil,
                    "Train a student of the shape given by --model.layers, --model.width, …, taught by this model; "
                    "interrupted, the same command goes on");
  command->add_flag("--random", arguments->random, "Prune at random instead of by magnitude: the baseline");
  command->add_flag("--sensitivity", arguments->sensitivity,
                    "How the held-out loss grows when each weight alone is pruned; writes nothing");
  command->add_option("--bits", arguments->bits,
                      "Bits of some weights by name: 'blocks.0.*=8', '*.down.weight=4:64', 'wte.*=full'");
  command
      ->add_option("--calibrate", arguments->calibrate,
                   "Rows of training data on which errors of 4-bit weights are compensated and ranges of activations "
                   "found; 0: round to nearest; default 128 where the model has data")
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
      "  trireme compress runs/latest --out runs/integers --weights int8 --activations int8 --kv-cache int8\n"
      "  trireme compress runs/latest --out runs/faster --prune neurons:0.3,heads:0.3\n"
      "  trireme compress runs/latest --out runs/sparse --prune 2:4\n"
      "  trireme compress runs/latest --sensitivity --batches 4\n"
      "  trireme compress runs/latest --distil --model.layers=2 --train.steps=500 --out runs/student\n"
      "  trireme compress runs/latest --search params=400k --out runs/shapes\n"
      "  trireme generate --from runs/small --prompt 'template<'\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return compress_once(context, *arguments); }; });
}

}  // namespace trireme::cli
