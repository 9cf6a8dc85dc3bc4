#include "trireme/train/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "support/source_dir.h"
#include "trireme/comm/types.h"
#include "trireme/core/error.h"
#include "trireme/train/compile.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

Config parse(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return parse_config(toml, "file.toml", overrides);
}

// The whole message of a refused request.
std::string refusal(const std::function<void()>& request) {
  try {
    request();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::request) << e.what();
    return e.message();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}
std::string refusal(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return refusal([&] { parse(toml, overrides); });
}

TEST(Config, CommandLineOverFileOverDefault) {
  const Config config = parse("[train]\nlr = 2e-3\nsteps = 7\n", {"train.steps=9", "model.family=llama"});
  EXPECT_EQ(config.train.lr, 2e-3);
  EXPECT_EQ(config.train.steps, 9);
  EXPECT_EQ(config.model.family, "llama");
  EXPECT_EQ(config.train.batch, 32);
  EXPECT_TRUE(config.is_given("train.steps"));
  EXPECT_FALSE(config.is_given("train.batch"));
  EXPECT_EQ(config.name, "file");
}

TEST(Config, EveryKindOfValueFromFile) {
  const Config config = parse(R"(
[model]
tie_embeddings = false
[data]
text = "book.txt"
[train]
betas = [0.8, 0.9]
max_time = "3h50m"
schedule = "wsd:0.2"
lr = 1
steps = 1e3
[parallel]
bucket = "1MiB"
[memory]
limit = 1024
[output]
checkpoint_every = 50
)");
  EXPECT_EQ(config.model.tie_embeddings, std::optional(false));
  EXPECT_EQ(config.data.text, std::vector<std::string>{"book.txt"});
  EXPECT_EQ(config.train.betas, (std::array{0.8, 0.9}));
  EXPECT_EQ(config.train.max_time.count, 13800);
  EXPECT_EQ(config.train.schedule, Schedule::wsd);
  EXPECT_EQ(config.train.schedule.argument(), 0.2);
  EXPECT_EQ(config.train.lr, 1.0);
  EXPECT_EQ(config.train.steps, 1000);
  EXPECT_EQ(config.parallel.bucket.count, 1U << 20);
  EXPECT_EQ(config.memory.limit.count, 1024U);
  EXPECT_EQ(config.output.checkpoint_every, (Interval{50, 0}));
}

TEST(Config, EveryKindOfValueFromCommandLine) {
  const Config config = parse("", {"model.tie_embeddings=true", "data.text=a.txt, b.txt", "train.betas=[0.8,0.9]",
                                   "train.lr=.5", "train.max_time=90s", "parallel.overlap=false",
                                   "parallel.bucket=2MiB", "output.checkpoint_every=1h", "train.precision=\"bf16\""});
  EXPECT_EQ(config.model.tie_embeddings, std::optional(true));
  EXPECT_EQ(config.data.text, (std::vector<std::string>{"a.txt", "b.txt"}));
  // A comma in quotes is part of a name.
  EXPECT_EQ(parse("", {R"(data.text=["a,b.txt"])"}).data.text, std::vector<std::string>{"a,b.txt"});
  EXPECT_EQ(parse("", {R"(data.text='a,b.txt',c.txt)"}).data.text, (std::vector<std::string>{"a,b.txt", "c.txt"}));
  EXPECT_EQ(config.train.betas, (std::array{0.8, 0.9}));
  EXPECT_EQ(config.train.lr, 0.5);
  EXPECT_EQ(config.train.max_time.count, 90);
  EXPECT_FALSE(config.parallel.overlap);
  EXPECT_EQ(config.parallel.bucket.count, 2U << 20);
  EXPECT_EQ(config.output.checkpoint_every, (Interval{0, 3600}));
  EXPECT_EQ(config.train.precision, Precision::bf16);
}

// Of keys that are refused until they are built: what they are set to.
TEST(Config, ListsAndTables) {
  Config config;
  apply_setting(config, "parallel.stages=4, 2");
  apply_setting(config, "parallel.sharding.*.up.weight=out:tp");
  apply_setting(config, "parallel.sharding.a\"b=in:tp");
  EXPECT_EQ(config.parallel.stages, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(config.parallel.sharding.at("*.up.weight"), "out:tp");
  EXPECT_EQ(value_text(config, "parallel.sharding"), "\"*.up.weight\" = \"out:tp\"\n\"a\\\"b\" = \"in:tp\"\n");
  const std::string printed = to_toml(config);
  Config again;
  const std::vector<Key> keys = keys_of(again);
  for (const Entry& entry : read_toml(printed, "printed"))
    for (const Key& key : keys)
      if (key.name == entry.key) assign(key, entry.value);
  EXPECT_EQ(again.parallel, config.parallel) << printed;
}

TEST(Config, PrintedConfigurationLoadsBack) {
  const std::vector<std::string> changes = {
      "train.lr=0.30000000000000004", "train.max_time=1.5s",        "train.eps=1e-300",
      "data.text=[\"a b\", c\"d\\]",  "parallel.bucket=1000000B",   "output.staging=1000B",
      "output.checkpoint_every=0",    "model.tie_embeddings=false", "output.dir=täst\t"};
  const Config config = parse("", changes);
  const std::string printed = to_toml(config);
  const Config again = parse(printed);
  EXPECT_EQ(differing_keys(config, again), std::vector<std::string>{}) << printed;
  EXPECT_EQ(again.train.lr, config.train.lr);
  EXPECT_EQ(again.data, config.data);
  EXPECT_EQ(again.parallel, config.parallel);
  EXPECT_EQ(again.output, config.output);
  EXPECT_EQ(to_toml(again), printed);
  EXPECT_EQ(differing_keys(Config{}, parse("", {"train.lr=2"})), std::vector<std::string>{"train.lr"});
}

TEST(Config, DescriptionIsTheDefaultConfiguration) {
  const std::string described = describe_config();
  EXPECT_EQ(differing_keys(Config{}, parse(described)), std::vector<std::string>{});
  Config defaults;
  for (const Key& key : keys_of(defaults)) {
    EXPECT_FALSE(key.meaning.empty()) << key.name;
    const std::string line = key.name == "parallel.sharding" ? "\n[parallel.sharding]" : "\n" + key.leaf() + " = ";
    EXPECT_NE(described.find(line), std::string::npos) << key.name;
  }
}

TEST(Config, BuiltInsLoadByName) {
  for (const Builtin& builtin : builtin_configs()) {
    const Config config = load_config(std::string(builtin.name));
    EXPECT_EQ(config.name, builtin.name);
  }
  EXPECT_EQ(load_config("quickstart", std::vector<std::string>{"train.steps=3"}).train.steps, 3);
  EXPECT_EQ(refusal([] { load_config("quickstar"); }),
            "there is no configuration quickstar; built in: quickstart, gpt2-small-cpu, llama-tiny, two-layer, mlp, "
            "convnet, resnet18; did you mean quickstart?");
}

TEST(Config, FoldersAreConfigurations) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("trireme-config-" + std::to_string(::getpid()));
  fs::create_directories(folder / "run");
  fs::create_directories(folder / "model");
  std::ofstream(folder / "run" / "config.toml") << "[train]\nsteps = 12\n";
  std::ofstream(folder / "model" / "config.json") << R"({"model_type":"gpt2","n_layer":3})";
  EXPECT_EQ(load_config((folder / "run/").string()).train.steps, 12);
  EXPECT_EQ(load_config((folder / "run/").string()).name, "run");
  EXPECT_EQ(load_config((folder / "model").string()).init.from, (folder / "model").string());
  EXPECT_EQ(load_config((folder / "model").string()).model.layers, 3);
  EXPECT_NE(refusal([&] { load_config(folder.string()); }).find("neither a run folder"), std::string::npos);
  fs::remove_all(folder);
}

TEST(Config, WrongValuesNameKeyLineAndWhatIsExpected) {
  EXPECT_EQ(refusal("[train]\n\nlr = \"fast\"\n"), "file.toml:3: train.lr must be a positive number, got \"fast\"");
  EXPECT_EQ(refusal("[train]\nlr = 0\n"), "file.toml:2: train.lr must be a positive number, got 0");
  EXPECT_EQ(refusal("[train]\nsteps = 1.5\n"), "file.toml:2: train.steps must be an integer of at least 0, got 1.5");
  EXPECT_EQ(refusal("[parallel]\nzero = 4\n"), "file.toml:2: parallel.zero must be an integer from 0 to 3, got 4");
  EXPECT_EQ(refusal("[model]\ndropout = 1.0\n"),
            "file.toml:2: model.dropout must be a number from 0 to below 1, got 1");
  EXPECT_EQ(refusal("[parallel]\noverlap = 1\n"), "file.toml:2: parallel.overlap must be true or false, got 1");
  EXPECT_EQ(refusal("[train]\nprecision = \"BF-16\"\n"),
            "file.toml:2: train.precision must be one of f32, tf32, bf16, fp16, fp8, got \"BF-16\"; did you mean "
            "\"bf16\"?");
  EXPECT_EQ(refusal("[train]\nbetas = [0.9]\n"),
            "file.toml:2: train.betas must be two numbers from 0 to below 1, got [0.9]");
  EXPECT_EQ(refusal("[parallel]\nbucket = \"big\"\n"),
            "file.toml:2: parallel.bucket must be a size such as \"25MiB\", got \"big\"");
  EXPECT_EQ(refusal("[train]\nlr = nan\n"), "file.toml:2: train.lr must be a positive number, got nan");
  EXPECT_EQ(refusal("", {"train.lr=fast"}), "command line: train.lr must be a positive number, got \"fast\"");
  EXPECT_EQ(refusal("", {"train.steps="}), "command line: train.steps must be an integer of at least 0, got \"\"");
  EXPECT_EQ(
      refusal("", {"parallel.mesh=dp=2,dp=2"}),
      "command line: parallel.mesh must be \"auto\" or axes such as \"pp=2,dp=2,tp=2\" (pp, dp, tp, h, w; one may "
      "be \"*\"), got \"dp=2,dp=2\"; the axis dp is named twice");
  EXPECT_TRUE(
      refusal("", {"parallel.mesh=tp=2,qq=2"}).ends_with("; there is no axis \"qq\", the axes are pp, dp, tp, h, w"));
  EXPECT_TRUE(
      refusal("", {"parallel.mesh=dp=2,tp=0"}).ends_with("; an axis has one rank at least: tp=1, or leave tp out"));
  EXPECT_TRUE(refusal("", {"parallel.mesh=dp2,tp:2"}).ends_with("; did you mean \"dp=2,tp=2\"?"));
  EXPECT_TRUE(refusal("", {"parallel.mesh=dp2,qq:2"}).ends_with("; \"dp2\" is no axis with its number of ranks"));
}

TEST(Config, ChoicesWithArguments) {
  for (const char* good : {"interleaved:2", "zero-bubble", "1f1b", "zero-bubble:auto", "file:my schedule.txt"}) {
    Config config;
    apply_setting(config, std::string("parallel.pipeline=") + good);
    EXPECT_EQ(config.parallel.pipeline.text(), good);
  }
  for (const char* good : {"topk:0.01", "powersgd:2", "int8"}) EXPECT_EQ(Choice<Compress>(good).text(), good);
  EXPECT_EQ(Choice<Compress>("topk:1e-3").argument(), 1e-3);
  EXPECT_EQ(Choice<Pipeline>("file:a:b").path(), "a:b");
  EXPECT_EQ(Choice<Planning>("plans/one.toml"), Planning::file);
  EXPECT_EQ(Choice<Planning>("auto"), Planning::automatic);
  EXPECT_THROW(Choice<Compress>("topk"), Error);
  for (const char* bad : {"interleaved", "interleaved:", "interleaved:0", "interleaved:1.5", "interleaved:2x", "1F1B",
                          "file:", "zero-bubble:2"})
    EXPECT_NE(refusal("", {std::string("parallel.pipeline=") + bad}).find("must be one of"), std::string::npos) << bad;
  const auto says = [](const std::string& setting, const std::string& what) {
    EXPECT_NE(refusal("", {setting}).find(what), std::string::npos) << refusal("", {setting});
  };
  for (const char* bad : {"topk:0", "topk:1.5", "topk:nan"}) {
    says(std::string("parallel.compress=") + bad, "must be one of");
    says(std::string("parallel.compress=") + bad, "; FRACTION is above 0 and at most 1");
  }
  says("parallel.compress=powersgd:0", "; RANK is a whole number of at least 1");
  says("parallel.server=ssp:-1", "; S is a whole number of at least 0");
}

TEST(Config, CompressionAndWhatItDoesNotGoWith) {
  const auto with = [](std::vector<std::string> settings) {
    settings.insert(settings.begin(), {"parallel.mesh=dp=4", "train.optimizer=sgd"});
    return settings;
  };
  for (const char* good : {"bf16", "int8", "onebit", "topk:0.01", "powersgd:2"})
    EXPECT_EQ(parse("", with({std::string("parallel.compress=") + good})).parallel.compress.text(), good);
  const auto refused = [&](const std::vector<std::string>& settings, const char* because) {
    EXPECT_NE(refusal("", with(settings)).find(because), std::string::npos) << refusal("", with(settings));
  };
  refused({"parallel.compress=int8", "parallel.mesh=dp=1"}, "the nearest is \"dp=2\"");
  EXPECT_EQ(parse("", with({"parallel.compress=int8", "parallel.zero=3", "memory.offload=all"})).parallel.zero, 3);
  refused({"parallel.compress=topk:0.1", "train.optimizer=adamw"}, "train.optimizer = \"sgd\"");
  refused({"parallel.compress=onebit", "train.optimizer=adamw", "train.warmup=0", "train.steps=3"},
          "parallel.compress_warmup");
  refused({"parallel.compress=int8", "parallel.compress_warmup=5"}, "compresses from the start");
  refused({"parallel.compress=onebit", "train.optimizer=sgd", "parallel.momentum_masking=true"}, "is for \"topk\"");
  refused({"parallel.compress_warmup=5"}, "parallel.compress is \"none\"");
  for (const char* own : {"parallel.compress=topk:0.1", "parallel.compress=onebit"}) {
    refused({own, "prune.method=movement", "prune.begin=1", "prune.end=5"},
            "the nearest is prune.method = \"magnitude\"");
    refused({own, "prune.method=magnitude", "prune.schedule=iterative", "prune.begin=2", "prune.rewind=1"},
            "the nearest is parallel.compress = \"int8\"");
  }
  refused({"parallel.error_feedback=false"}, "parallel.compress is \"none\"");
}

TEST(Config, UpdatesOnTheHostNeedStatesThere) {
  EXPECT_EQ(parse("", {"memory.offload=optimizer"}).memory.offload_update, OffloadUpdate::device);
  for (const char* offload : {"optimizer", "activations, optimizer", "all"})
    EXPECT_EQ(parse("", {std::string("memory.offload=") + offload, "memory.offload_update=host"}).memory.offload_update,
              OffloadUpdate::host);
  EXPECT_EQ(refusal("", {"memory.offload_update=host"}),
            "command line: memory.offload_update = \"host\" updates optimizer states that have left the GPU, and "
            "memory.offload = "
            "\"none\" keeps them; the nearest is \"optimizer\"");
  EXPECT_NE(refusal("", {"memory.offload_update=host", "memory.offload=weights"}).find("\"weights,optimizer\""),
            std::string::npos);
  EXPECT_EQ(
      refusal("", {"memory.offload_update=host", "memory.offload=all", "memory.offload_tier=disk"}),
      "command line: memory.offload_update = \"host\" needs the states in the host's memory, and memory.offload_tier = "
      "\"disk\"; the nearest is \"host\"");
  EXPECT_NE(refusal("", {"memory.offload_update=cpu"}).find("must be one of"), std::string::npos);
}

TEST(Config, WrongPartsOfListsSuggestTheNearest) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"memory.offload=optimiser", "optimizer"},
      {"memory.offload=Activation", "activations"},
      {"memory.offload=optimizer,weight", "optimizer,weights"},
      {"memory.offload=weights+optimiser", "weights,optimizer"},
      {"memory.offload=params optimizer", "weights,optimizer"},
      {"memory.offload=everything", "all"},
      {"memory.offload=non", "none"},
      {"data.augment=flips", "flip"},
      {"data.augment=crop,flop", "crop,flip"},
      {"data.augment=flip+crop", "flip,crop"},
      // What is given twice is wrong, and no suggestion.
      {"data.augment=flip,flip", "flip"},
      {"data.augment=flip flip", "flip"},
      {"memory.offload=weights,wieghts", "weights"},
  };
  for (const auto& [setting, value] : cases)
    EXPECT_NE(refusal("", {setting}).find(fmt::format("; did you mean \"{}\"?", value)), std::string::npos)
        << refusal("", {setting});
  EXPECT_NE(refusal("[memory]\noffload = [\"weights\", \"optimiser\"]\n").find("; did you mean \"weights,optimizer\"?"),
            std::string::npos);
  for (const char* far : {"memory.offload=gradients", "memory.offload=optimizer,gradients", "data.augment=rotate"})
    EXPECT_EQ(refusal("", {far}).find("did you mean"), std::string::npos) << refusal("", {far});
}

TEST(Config, SizesSuggestUnits) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"8g", "8GiB"}, {"8G", "8GiB"}, {"512m", "512MiB"}, {"8gb", "8GB"}, {"8gib", "8GiB"}};
  for (const auto& [given, meant] : cases)
    EXPECT_NE(refusal("", {"memory.limit=" + given}).find(fmt::format("; did you mean \"{}\"?", meant)),
              std::string::npos)
        << refusal("", {"memory.limit=" + given});
}

TEST(Config, UnknownKeysSuggestTheNearest) {
  EXPECT_EQ(refusal("[train]\nstpes = 3\n"), "file.toml:2: unknown key train.stpes; did you mean train.steps?");
  EXPECT_EQ(refusal("[trian]\nsteps = 3\n"), "file.toml:2: unknown key trian.steps; did you mean train.steps?");
  EXPECT_EQ(refusal("[trian]\n"), "file.toml:1: unknown section [trian]; did you mean [train]?");
  EXPECT_EQ(refusal("lr = 1.0\n"), "file.toml:1: unknown key lr; did you mean train.lr?");
  EXPECT_EQ(refusal("train = 1\n"), "file.toml:1: train is a section, not a key");
  EXPECT_EQ(refusal("[model]\nseed = 1\n"), "file.toml:2: unknown key model.seed; did you mean train.seed?");
  EXPECT_EQ(refusal("[train]\nlearning_rate = 1\n"),
            "file.toml:2: unknown key train.learning_rate; did you mean train.lr?");
  EXPECT_EQ(refusal("[train]\nfp16 = true\n"),
            "file.toml:2: unknown key train.fp16; did you mean train.precision = \"fp16\"?");
  EXPECT_EQ(refusal("[train]\nqqqqqqqqqq = 1\n"),
            "file.toml:2: unknown key train.qqqqqqqqqq; `trireme config` lists them all");
  EXPECT_EQ(refusal("", {"train.stpes=3"}), "command line: unknown key train.stpes; did you mean train.steps?");
}

TEST(Config, OtherSystemsNames) {
  const std::vector<std::pair<std::string, std::string>> names = {{"gradient_checkpointing", "memory.remat"},
                                                                  {"batch_size", "train.batch"},
                                                                  {"n_layer", "model.layers"},
                                                                  {"hidden_size", "model.width"},
                                                                  {"max_steps", "train.steps"},
                                                                  {"epochs", "train.steps"},
                                                                  {"bf16", "train.precision"},
                                                                  {"zero_stage", "parallel.zero"},
                                                                  {"tensor-parallel", "parallel.mesh"},
                                                                  {"gradient_accumulation_steps", "train.micro_batch"},
                                                                  {"learning_rat", "train.lr"},
                                                                  {"NUM_LAYERS", "model.layers"},
                                                                  {"zero_optimization.stage", "parallel.zero"},
                                                                  {"fp16.enabled", "train.precision"}};
  for (const auto& [name, key] : names) EXPECT_EQ(suggest_key(name), std::optional(key)) << name;
}

TEST(Config, BrokenTomlNamesTheLine) {
  EXPECT_EQ(refusal("[train]\nlr = \n").find("file.toml:2: not valid TOML: "), 0U);
  EXPECT_EQ(refusal("[train]\nlr = 1.0\nlr = 2.0\n").find("file.toml:3: not valid TOML: "), 0U);
}

TEST(Config, OverridesAreTakenFromTheCommandLine) {
  std::vector<std::string> arguments = {
      "a.toml", "--train.lr=1e-3", "--resume", "--train.steps", "5", "--parallel.overlap", "--model.family",
      "llama",  "--runtime.trace", "-"};
  EXPECT_EQ(take_overrides(arguments),
            (std::vector<std::string>{"train.lr=1e-3", "train.steps=5", "parallel.overlap=true", "model.family=llama",
                                      "runtime.trace=-"}));
  EXPECT_EQ(arguments, (std::vector<std::string>{"a.toml", "--resume"}));
  arguments = {"--learning_rate=3"};
  EXPECT_EQ(refusal([&] { take_overrides(arguments); }), "unknown option --learning_rate; did you mean --train.lr?");
  arguments = {"--train.lr"};
  EXPECT_EQ(refusal([&] { take_overrides(arguments); }), "--train.lr needs a value: a positive number");
}

TEST(Config, KeysThatDoNotGoTogether) {
  EXPECT_EQ(refusal("[model]\nheads = 5\n"),
            "file.toml: model.width = 128 must be a multiple of model.heads = 5; the nearest number of heads that "
            "divides it is 4");
  EXPECT_EQ(
      refusal("[model]\nfamily = \"llama\"\nkv_heads = 3\n"),
      "file.toml: model.heads = 4 must be a multiple of model.kv_heads = 3; the nearest number that divides it is "
      "2");
  EXPECT_EQ(refusal("[train]\nmicro_batch = 5\n"),
            "file.toml: train.micro_batch = 5 must divide 32 rows (train.batch); the nearest that does is 4");
  EXPECT_EQ(refusal("[model]\nfamily = \"convnet\"\n"),
            "file.toml: model.family = \"convnet\" learns from images: set data.images, for example to \"synthetic\"");
  EXPECT_NE(refusal("[data]\nimages = \"synthetic\"\n").find("cannot read data.images"), std::string::npos);
  EXPECT_NE(refusal("[data]\ntext = \"a\"\ntokens = \"b\"\n").find("cannot both be given"), std::string::npos);
  EXPECT_NE(refusal("[train]\nmin_lr = 1.0\n").find("must not be above train.lr"), std::string::npos);
  EXPECT_NE(refusal("[train]\neval_every = 1\n[data]\nholdout = 0\n").find("needs held-out data"), std::string::npos);
}

// What only the configuration said for another family is no wish of the person who named this one.
TEST(Config, AnotherFamilyOverABuiltInConfiguration) {
  using Settings = std::vector<std::string>;
  const Config text = load_config("mlp", Settings{"model.family=gpt2", "data.text=book.txt"});
  EXPECT_EQ(text.data.images, "");
  EXPECT_NE(text.other_family.find(", data.images = \"synthetic\""), std::string::npos) << text.other_family;
  EXPECT_EQ(load_config("resnet18", Settings{"model.family=llama", "data.tokens=a.bin"}).data.images, "");
  const auto refused = [](const char* name, const Settings& settings) {
    return refusal([&] { load_config(name, settings); });
  };
  EXPECT_EQ(refused("mlp", {"model.family=gpt2"}),
            "model.family = \"gpt2\" learns from tokens and cannot read data.images = \"synthetic\" (mlp, convnet and "
            "resnet can): set data.text or data.tokens instead");
  // Both were asked for.
  EXPECT_NE(refused("mlp", {"model.family=gpt2", "data.text=book.txt", "data.images=synthetic"}).find("cannot read"),
            std::string::npos);
  EXPECT_EQ(refused("mlp", {"model.family=resnet"}),
            "model.layers = 4: a resnet has 18, 34 or 50 layers; the nearest is 18; the configuration has it for "
            "family mlp: give model.layers too");
  EXPECT_EQ(refused("mlp", {"model.family=resnet", "model.layers=7"}),
            "model.layers = 7: a resnet has 18, 34 or 50 layers; the nearest is 18");
  EXPECT_EQ(load_config("mlp", Settings{"model.family=resnet", "model.layers=18"}).model.layers, 18);
}

TEST(Config, LossScaleIsFp16s) {
  const Config config = parse("[train]\nprecision = \"fp16\"\nloss_scale = 1024\nloss_scale_window = 10\n");
  EXPECT_EQ(config.train.loss_scale, 1024);
  EXPECT_EQ(config.train.loss_scale_window, 10);
  EXPECT_EQ(
      refusal("[train]\nloss_scale = 1024\n"),
      "file.toml: train.loss_scale = 1024.0 scales fp16's loss; train.precision = \"f32\" needs none: leave it out, or "
      "set train.precision = \"fp16\"");
  // As a run folder's resolved configuration has them.
  EXPECT_EQ(parse("[train]\nloss_scale = 65536\nloss_scale_window = 2000\n").train.precision, Precision::f32);
  EXPECT_NE(refusal("[train]\nprecision = \"fp16\"\nloss_scale = 0.5\n").find("train.loss_scale"), std::string::npos);
  EXPECT_NE(refusal("[train]\nprecision = \"fp16\"\nloss_scale_window = 0\n").find("train.loss_scale_window"),
            std::string::npos);
}

TEST(Config, AxesMustFitTheModel) {
  EXPECT_EQ(
      refusal("[parallel]\nmesh = \"h=2,dp=2\"\n"),
      "file.toml: parallel.mesh = \"h=2,dp=2\": h and w shard the heights and widths of images, and model.family = "
      "\"gpt2\" has none; the nearest is \"dp=4\"");
  EXPECT_EQ(parse("[parallel]\nmesh = \"pp=1,dp=1,tp=*\"\n").parallel.mesh, "pp=1,dp=1,tp=*");
}

TEST(Config, OldNamesAreErrorsThatNameTheNewOnes) {
  EXPECT_EQ(refusal("", {"runtime.weight_gradients=auto"}),
            "command line: runtime.weight_gradients is now called runtime.overlap_wgrad");
  EXPECT_EQ(refusal("[runtime]\nweight_gradients = \"auto\"\n"),
            "file.toml:2: runtime.weight_gradients is now called runtime.overlap_wgrad");
  EXPECT_EQ(refusal("", {"parallel.seeds.*.up.weight=out:tp"}),
            "command line: parallel.seeds.*.up.weight is now called parallel.sharding.*.up.weight");
  EXPECT_EQ(refusal("[parallel.seeds]\n\"*.up.weight\" = \"out:tp\"\n"),
            "file.toml:1: parallel.seeds is now called parallel.sharding");
  for (const auto& [text, value] : std::vector<std::pair<std::string, std::optional<bool>>>{
           {"auto", {}}, {"true", true}, {"false", false}, {"beside", true}, {"in_line", false}})
    EXPECT_EQ(parse("", {"runtime.overlap_wgrad=" + text}).runtime.overlap_wgrad, value) << text;
}

// Written by a version that had other names, and ignored what it had not built.
TEST(Config, OldRunFoldersAreTranslated) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("trireme-old-run-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "config.toml") << "[parallel]\nstages = [4]\npipeline = \"gpipe\"\n[parallel.seeds]\n"
                                           "\"*.up.weight\" = \"out:tp\"\n[runtime]\nweight_gradients = \"in_line\"\n"
                                           "[train]\nsteps = 12\n";
  const Config config = load_config(folder.string());
  EXPECT_EQ(config.train.steps, 12);
  EXPECT_EQ(config.runtime.overlap_wgrad, std::optional(false));
  EXPECT_EQ(config.parallel.sharding, (std::map<std::string, std::string>{{"*.up.weight", "out:tp"}}));
  EXPECT_EQ(config.parallel.pipeline.text(), "gpipe");
  EXPECT_EQ(config.parallel.stages, (std::vector<std::int64_t>{4}));
  const std::vector<std::string> old = {"runtime.weight_gradients=auto"};
  EXPECT_NE(refusal([&] { load_config(folder.string(), old); }).find("is now called"), std::string::npos);
  fs::remove_all(folder);
}

// docs/names.md is what `trireme config --names` prints.
TEST(Config, PageOfNamesIsTheTable) {
  std::ifstream file(std::filesystem::path(source_dir()) / "docs" / "names.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, names_page()) << "write it anew: trireme config --names > docs/names.md";
  for (const char* row : {"`tensor_model_parallel_size` (\"tp=N\")", "`zero_optimization`", "`gradient_checkpointing`"})
    EXPECT_NE(page.find(row), std::string::npos) << row;
}

// docs/options.md is what `trireme config --markdown` prints.
TEST(Config, ReferencePageIsTheTable) {
  std::ifstream file(std::filesystem::path(source_dir()) / "docs" / "options.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, reference_page()) << "write it anew: trireme config --markdown > docs/options.md";
  Config defaults;
  for (const Key& key : keys_of(defaults))
    EXPECT_NE(page.find("| `" + key.name + "` |"), std::string::npos) << key.name;
}

TEST(Config, AlgorithmsHaveOneOrder) {
  for (const std::string_view name : Choice<AllReduce>::names()) {
    Config config;
    config.parallel.allreduce = name;
    EXPECT_EQ(comm::name_of(algorithm_of(config)), name);
  }
}

}  // namespace
}  // namespace trireme::train
