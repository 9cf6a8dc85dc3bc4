// Requests that cannot be met: exit code 2, and one line that says what was wrong, what was expected and what is near.
#include <gtest/gtest.h>

#include "end_to_end/program.h"
#include "trireme/device/cuda/cuda.h"

namespace trireme::testing {
namespace {

class BadInput : public Program {
 protected:
  // The error names every one of `parts`, and nothing was begun.
  void expect_refusal(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) const {
    const std::vector<std::string> before = names_in(".");
    const std::string error = refused(arguments);
    for (const std::string& part : parts)
      EXPECT_NE(error.find(part), std::string::npos) << "no '" << part << "' in:\n" << error;
    EXPECT_EQ(names_in("."), before) << error;
  }
  void expect_key_refused(const std::string& setting, const std::vector<std::string>& parts) const {
    expect_refusal({"train", "tiny.toml", "--" + setting}, parts);
  }
  // Line 2 of bad.toml holds `line`, in the section.
  void expect_line_refused(const std::string& section, const std::string& line, std::vector<std::string> parts) const {
    write("bad.toml", "[" + section + "]\n" + line + "\n");
    parts.emplace_back("bad.toml:2");
    expect_refusal({"train", "bad.toml"}, parts);
  }
};

TEST_F(BadInput, UnknownKeys) {
  expect_key_refused("train.lrr=1", {"train.lrr", "did you mean train.lr?"});
  expect_key_refused("trian.lr=1", {"trian.lr", "did you mean train.lr?"});
  expect_line_refused("train", "learning_rate = 1", {"train.learning_rate", "train.lr"});
  expect_line_refused("memory", "gradient_checkpointing = true", {"memory.remat"});
  expect_line_refused("model", "n_embd = 64", {"model.n_embd", "model.width"});
  write("bad.toml", "[trian]\n");
  expect_refusal({"train", "bad.toml"}, {"bad.toml:1", "[trian]", "[train]"});
}

// Only what is near is suggested.
TEST_F(BadInput, ANameOfNoKeyIsNotTakenForAnother) {
  const std::string error = refused({"train", "tiny.toml", "--prune.share=0.5"});
  expect_part(error, "prune.share");
  expect_none(error, "did you mean");
}

// Whatever reads TOML: a small file does not use up the stack.
TEST_F(BadInput, KeysOfManyParts) {
  std::string key = "a";
  for (int i = 0; i < 30000; ++i) key += ".a";
  for (const std::string& text : {"[" + key + "]\n", key + " = 1\n"}) {
    write("deep.toml", text);
    for (const std::vector<std::string>& command : {std::vector<std::string>{"train", "deep.toml"},
                                                    {"memory", "deep.toml", "--brief"},
                                                    {"train", "tiny.toml", "--plan=deep.toml", "--dry-run"},
                                                    {"simulate", "tiny.toml", "--cluster=deep.toml"}})
      expect_refusal(command, {"deep.toml:1: a key of more parts than 32"});
  }
}

TEST_F(BadInput, SizesOfNoModelInAFolder) {
  done({"train", "tiny.toml", "--output.dir=run"});
  done({"export", "run", "hf"});
  std::string config = read("hf/config.json");
  const std::string layers = "\"n_layer\": 1,";
  ASSERT_NE(config.find(layers), std::string::npos) << config;
  write("hf/config.json", config.replace(config.find(layers), layers.size(), "\"n_layer\": 1000000000,"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"train", "hf", "--data.text=text.txt"}, {"import", "hf", "new"}, {"memory", "hf"}})
    expect_refusal(command, {"n_layer = 1000000000", "config.json"});
}

TEST_F(BadInput, WrongTypes) {
  expect_key_refused("train.lr=fast", {"train.lr", "a positive number", "\"fast\""});
  expect_key_refused("train.steps=1.5", {"train.steps", "integer", "1.5"});
  expect_key_refused("model.tie_embeddings=maybe", {"model.tie_embeddings", "true, false or \"auto\""});
  expect_key_refused("train.betas=0.9", {"train.betas", "two numbers"});
  expect_key_refused("memory.limit=8apples", {"memory.limit", "\"8GiB\"", "8apples"});
  expect_key_refused("train.max_time=soon", {"train.max_time", "\"3h50m\"", "soon"});
  expect_key_refused("train.lr=nan", {"train.lr"});
  expect_line_refused("train", "lr = \"1e-3\"", {"train.lr", "a positive number"});
  expect_line_refused("train", "batch = [1, 2]", {"train.batch", "integer"});
}

TEST_F(BadInput, OutOfRange) {
  expect_key_refused("train.lr=-1", {"train.lr", "positive", "-1"});
  expect_key_refused("train.batch=0", {"train.batch", "0"});
  expect_key_refused("model.layers=0", {"model.layers", "0"});
  expect_key_refused("data.holdout=1", {"data.holdout", "from 0 to below 1"});
  expect_key_refused("parallel.zero=4", {"parallel.zero", "from 0 to 3", "4"});
  expect_key_refused("memory.remat=every", {"memory.remat", "did you mean \"every:2\"?"});
  expect_key_refused("train.precision=bf17", {"train.precision", "f32", "did you mean \"bf16\"?"});
  expect_key_refused("train.schedule=wsd:2", {"train.schedule", "wsd:FRACTION"});
  expect_key_refused("model.width=99999999999999999999", {"model.width"});
  expect_key_refused("model.width=1099511627776", {"model.width"});
}

// Far more than any memory: said in words, whatever the numbers do on the way.
TEST_F(BadInput, ShapesBeyondCounting) {
  const std::string error = refused({"train", "tiny.toml", "--model.width=2000000000", "--model.heads=1"});
  EXPECT_NE(error.find("2000000000"), std::string::npos) << error;
}

TEST_F(BadInput, MoreThanTheMachineHas) {
  expect_refusal({"train", "tiny.toml", "--model.width=4194304", "--model.heads=1"}, {"this machine has", "memory"});
  // Planning for another machine is fine.
  done({"memory", "tiny.toml", "--model.width=4194304", "--model.heads=1", "--brief"});
}

// Said in words where a model is used, too.
TEST_F(BadInput, AModelThatIsTooLargeToUse) {
  done({"train", "tiny.toml", "--output.dir=run"});
  std::string config = read("run/config.toml");
  for (const auto& [from, to] :
       {std::pair("\nwidth = 16", "\nwidth = 4194304"), std::pair("\nheads = 2", "\nheads = 1")}) {
    ASSERT_NE(config.find(from), std::string::npos) << config;
    config.replace(config.find(from), std::string(from).size(), to);
  }
  write("run/config.toml", config);
  expect_refusal({"generate", "--from", "run", "--prompt", "oar"},
                 {"run: the model needs", "this machine has", "memory"});
  expect_refusal({"eval", "--from", "run"}, {"run: the model needs", "this machine has", "memory"});
}

TEST_F(BadInput, MemoryLimit) {
  expect_key_refused("memory.limit=100KiB", {"memory.limit", "100KiB", "train.micro_batch"});
}

TEST_F(BadInput, ShapesThatDoNotFit) {
  expect_key_refused("model.heads=3", {"model.heads = 3", "model.width = 16", "nearest", "2"});
  expect_refusal({"train", "tiny.toml", "--model.family=llama", "--model.heads=4", "--model.kv_heads=3"},
                 {"model.kv_heads = 3", "model.heads = 4"});
  expect_key_refused("train.micro_batch=3", {"train.micro_batch = 3", "train.batch", "nearest", "2"});
  expect_refusal({"train", "resnet18", "--model.layers=20"}, {"model.layers = 20", "18"});
  expect_refusal({"train", "convnet", "--model.layers=64"}, {"model.layers = 64", "at most 5"});
  expect_key_refused("model.family=convnet", {"data.images", "synthetic"});
  expect_key_refused("data.images=synthetic", {"gpt2", "data.images"});
  expect_key_refused("data.tokens=tokens.bin", {"data.text", "data.tokens"});
  expect_key_refused("model.vocab=100", {"model.vocab = 100", "256"});
}

TEST_F(BadInput, DataThatIsNotThere) {
  std::filesystem::create_directory(folder() / "empty");
  expect_key_refused("data.text=missing.txt", {"data.text", "missing.txt"});
  expect_key_refused("data.text=empty", {"data.text", "empty"});
  expect_key_refused("data.text=", {"data.text"});
  expect_key_refused("data.eval=missing.txt", {"data.eval", "missing.txt"});
  expect_refusal({"train", "tiny.toml", "--data.text=", "--data.tokens=missing.bin", "--model.vocab=256"},
                 {"data.tokens", "missing.bin"});
  expect_refusal({"train", "tiny.toml", "--data.text=", "--data.tokens=part-*.bin", "--model.vocab=256"},
                 {"data.tokens", "part-*.bin"});
}

TEST_F(BadInput, DataThatIsTooShortOrOdd) {
  expect_key_refused("model.context=100000", {"model.context = 100000"});
  expect_refusal({"train", "tiny.toml", "--model.context=100000", "--data.holdout=0"},
                 {"model.context = 100000", "100001"});
  write("short.txt", "short");
  expect_key_refused("data.eval=short.txt", {"held-out text", "model.context = 16"});
  write("odd.bin", std::string(1001, '\1'));
  expect_refusal({"train", "tiny.toml", "--data.text=", "--data.tokens=odd.bin", "--model.vocab=512"},
                 {"odd.bin", "1001"});
  write("large.bin", std::string(1000, '\2'));
  expect_refusal({"train", "tiny.toml", "--data.text=", "--data.tokens=large.bin", "--model.vocab=512"},
                 {"large.bin", "514", "model.vocab"});
  expect_refusal({"train", "tiny.toml", "--data.text=", "--data.tokens=large.bin"}, {"model.vocab"});
}

TEST_F(BadInput, PlacesThatCannotBeWritten) {
  expect_key_refused("output.dir=text.txt/run", {"output.dir", "text.txt/run"});
  expect_key_refused("output.dir=text.txt", {"output.dir", "text.txt"});
  expect_key_refused("runtime.trace=missing/trace.json", {"runtime.trace", "missing/trace.json"});
}

TEST_F(BadInput, UnknownCommandsAndOptions) {
  expect_refusal({"trian"}, {"'trian'", "'train'"});
  expect_refusal({"frobnicate"}, {"'frobnicate'", "train", "doctor"});
  expect_refusal({"bench", "stepp"}, {"'bench stepp'", "'bench step'"});
  expect_refusal({"train", "tiny.toml", "--dry-rum"}, {"--dry-rum", "--dry-run"});
  expect_refusal({"train", "tiny.toml", "--lr=1"}, {"--lr", "--train.lr"});
  expect_refusal({"train", "tiny.toml", "--learning-rate", "1"}, {"--learning-rate", "--train.lr"});
  expect_refusal({"train", "tiny.toml", "--fp16"}, {"--fp16", "--train.precision"});
  expect_refusal({"train", "tiny.toml", "--train.lr"}, {"--train.lr", "needs a value"});
  expect_refusal({"train", "tiny.toml", "more"}, {"'more'"});
  expect_refusal({"inspect", "grph", "tiny.toml"}, {"'grph'", "'graph'"});
  expect_refusal({"inspect", "graph", "tiny.toml", "--graph=micr"}, {"'micr'", "micro"});
  expect_refusal({"inspect", "program", "tiny.toml", "--program=stp"}, {"'stp'", "step"});
  expect_refusal({"inspect", "program", "tiny.toml", "--rank=1"}, {"--rank 1"});
  expect_refusal({"inspect", "schedul", "--stages=2"}, {"'schedul'", "'schedule'"});
  expect_refusal({"inspect", "schedule"}, {"--stages is missing"});
  expect_refusal({"inspect", "schedule", "--stages=2"}, {"--micro-batches is missing"});
  expect_refusal({"inspect", "schedule", "--stages=0", "--micro-batches=2"}, {"--stages"});
  expect_refusal({"inspect", "schedule", "--stages=-1", "--micro-batches=2"},
                 {"--stages must be a whole number from 1 to 4096, got -1"});
  const std::vector<std::string> two = {"inspect", "schedule", "--stages=2", "--micro-batches=2"};
  const auto of_two = [&](const char* option) {
    std::vector<std::string> words = two;
    words.emplace_back(option);
    return words;
  };
  expect_refusal(of_two("--pipeline=1f1d"), {"'1f1d'", "'1f1b'"});
  expect_refusal(of_two("--pipeline=file:none.txt"), {"none.txt", "cannot be read"});
  expect_refusal(of_two("--max-held=2"), {"--max-held", "zero-bubble:auto"});
  expect_refusal(of_two("--costs=1,2"), {"--costs"});
  expect_refusal(of_two("--costs=1,0,2"), {"--costs"});
  expect_refusal(of_two("--graph=micro"), {"--graph", "schedule"});
  expect_refusal({"inspect", "graph", "tiny.toml", "--stages=2"}, {"--stages", "inspect schedule"});
  expect_refusal({"train", "tiny.toml", "--disable-pass=fuze"}, {"'fuze'", "'fuse'"});
  expect_refusal({"train", "tiny.toml", "--disable-pass=autodiff"}, {"'autodiff'", "fuse"});
  expect_refusal({"bench", "step", "tiny.toml", "--steps=none"}, {"--steps"});
  expect_refusal({"memory", "tiny.toml", "--plan", ""}, {"--plan"});
  expect_refusal({"fit", "tiny.toml", "--cluster=h100", "--generation", ""}, {"--generation"});
  expect_refusal({"simulate", "tiny.toml", "--cluster=h100", "--generation", ""}, {"--generation"});
  expect_refusal({"simulate", "tiny.toml", "--cluster=h100", "--planned"}, {"--published"});
  expect_refusal({"bench", "gemm", "--shapes=32x16"}, {"--shapes", "MxNxK", "32x16"});
  expect_refusal({"bench", "gemm", "--device=cpu", "--precisions=tf32"}, {"tf32", "bf16"});
  expect_refusal({"memory", "tiny.toml", "--runtime.device=cpu", "--train.precision=tf32"}, {"tf32", "GPU", "bf16"});
  expect_refusal({"memory", "convnet", "--train.precision=fp8"}, {"fp8", "linear layers", "convnet", "bf16"});
}

// Whatever a command makes of keys, one that there is not is refused, and so is one that has no place in it.
TEST_F(BadInput, KeysOfEveryCommand) {
  const std::vector<std::vector<std::string>> commands = {
      {"train", "tiny.toml"},
      {"memory", "tiny.toml"},
      {"inspect", "graph", "tiny.toml"},
      {"simulate", "tiny.toml", "--cluster=h100"},
      {"plan", "tiny.toml", "--cluster=h100"},
      {"fit", "--cluster=h100"},
      {"bench", "step", "tiny.toml"},
      {"bench", "comm"},
      {"bench", "gemm"},
      {"bench", "reduce"},
      {"eval", "--from=run"},
      {"generate", "--from=run", "--prompt=a"},
      {"export", "run", "folder"},
      {"import", "folder", "run"},
      {"compress", "run", "--out=small", "--weights=int8"},
      {"tokenize", "text.txt", "--out=tokens.bin"},
      {"config", "tiny.toml"},
      {"calibrate"},
      {"doctor"},
      {"lesson"},
      {"completion", "bash"},
      {"man"},
  };
  for (std::vector<std::string> words : commands) {
    words.emplace_back("--train.learning_rate=1");
    expect_refusal(words, {"unknown key train.learning_rate; did you mean train.lr?"});
  }
  for (std::vector<std::string> words : std::vector<std::vector<std::string>>{
           {"bench", "comm"}, {"doctor"}, {"completion", "bash"}, {"tokenize", "text.txt", "--out=t.bin"}}) {
    words.emplace_back("--train.lr=1");
    expect_refusal(words, {"trireme " + words.front(), "--train.lr=1 no place in it"});
  }
}

TEST_F(BadInput, ValuesHaveTheirNearest) {
  expect_key_refused("runtime.device=gpu", {"did you mean \"cuda\"?"});
  expect_key_refused("train.precision=float16", {"did you mean \"fp16\"?"});
  expect_key_refused("train.precision=BFloat16", {"did you mean \"bf16\"?"});
  expect_key_refused("train.precision=fp32", {"did you mean \"f32\"?"});
  expect_key_refused("memory.limit=8gb", {"did you mean \"8GB\"?"});
  expect_key_refused("memory.limit=8g", {"did you mean \"8GiB\"?"});
  expect_key_refused("parallel.bucket=25mib", {"did you mean \"25MiB\"?"});
  expect_key_refused("parallel.mesh=tp2", {"did you mean \"tp=2\"?"});
  expect_key_refused("parallel.mesh=dp:2,tp:2", {"did you mean \"dp=2,tp=2\"?"});
  expect_key_refused("output.directory=x", {"did you mean output.dir?"});
  expect_refusal({"memory", "tiny.tml"}, {"there is no configuration tiny.tml", "did you mean tiny.toml?"});
  expect_refusal({"plan", "tiny.toml", "--objective=tme"}, {"--objective", "time, cost, memory", "'time'"});
  expect_refusal({"compress", "run", "--quantize=int8"}, {"--quantize", "--weights"});
}

TEST_F(BadInput, ConfigurationsThatDoNotExistOrDoNotRead) {
  expect_refusal({"train", "quickstrat"}, {"quickstrat", "did you mean quickstart?"});
  expect_refusal({"config", "quickstrat"}, {"quickstrat", "did you mean 'quickstart'?"});
  expect_refusal({"memory", "missing.toml"}, {"missing.toml"});
  std::filesystem::create_directory(folder() / "nothing");
  expect_refusal({"train", "nothing"}, {"nothing", "config.toml", "config.json"});
  write("bad.toml", "[train]\nlr = \n");
  expect_refusal({"train", "bad.toml"}, {"bad.toml:2", "TOML"});
  write("bad.toml", "[train]\nlr = 1\nlr = 2\n");
  expect_refusal({"train", "bad.toml"}, {"bad.toml:3"});
  write("bad.toml", "lr = 1\n");
  expect_refusal({"train", "bad.toml"}, {"bad.toml:1", "train.lr"});
  write("bad.toml", std::string("\x7f"
                                "ELF\0\1\2",
                                7));
  expect_refusal({"train", "bad.toml"}, {"bad.toml"});
}

// What the language has and this version does not: refused by key, with what there is.
TEST_F(BadInput, NotAvailableYet) {
  expect_key_refused("runtime.transport=nccl", {"runtime.transport", "nccl", "runtime.device"});
  if (!device::cuda::built()) expect_key_refused("runtime.device=cuda", {"runtime.device", "no CUDA", "preset cuda"});
  expect_refusal({"dashboard", "tiny.toml"}, {"not available in this version", "dashboard"});
}

TEST_F(BadInput, Tokenizers) {
  expect_key_refused("data.tokenizer=missing.json", {"data.tokenizer", "missing.json"});
  expect_refusal({"tokenize", "tiny.toml"}, {"--tokenizer", "--train"});
  expect_refusal({"tokenize", "--tokenizer=bytes", "tiny.toml"}, {"--out"});
  expect_refusal({"tokenize", "--tokenizer=tiny.toml", "--out=x.bin", "tiny.toml"}, {"tiny.toml", "JSON"});
  expect_refusal({"tokenize", "--train=100", "--out=x.json", "tiny.toml"}, {"--train"});
}

TEST_F(BadInput, Generate) {
  expect_refusal({"generate", "--prompt=a"}, {"--from"});
  expect_refusal({"generate", "--from=missing", "--prompt=a"}, {"missing"});
  std::filesystem::create_directory(folder() / "nothing");
  expect_refusal({"generate", "--from=nothing", "--prompt=a"}, {"nothing", "run folder", "Hugging Face"});
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=1"});
  expect_refusal({"generate", "--from=run"}, {"--prompt"});
  expect_refusal({"generate", "--from=run", "--prompt=a", "--step=7"}, {"step 7", "1"});
  expect_refusal({"generate", "--from=run", "--prompt-tokens=1,2x"}, {"--prompt-tokens", "2x"});
  expect_refusal({"generate", "--from=run", "--prompt-tokens=1,999"}, {"999", "256"});
  expect_refusal({"generate", "--from=run", "--prompt=a", "--temperature=-1"}, {"--temperature"});
  expect_refusal({"generate", "--from=run", "--prompt=a", "--top-p=1.5"}, {"--top-p"});
  done({"train", "mlp", "--output.dir=images", "--train.steps=1", "--model.width=8"});
  expect_refusal({"generate", "--from=images", "--prompt=a"}, {"token"});
  std::filesystem::remove_all(folder() / "run/checkpoints");
  expect_refusal({"generate", "--from=run", "--prompt=a"}, {"run", "no checkpoint"});
}

// It would be a folder called "--dry-run", and a run.
TEST_F(BadInput, AnOptionIsNoValueOfAnother) {
  const auto expect_other = [&](std::vector<std::string> words, const std::string& option, const std::string& other) {
    words.insert(words.begin() + 1, "two-layer");
    expect_refusal(words, {option + " needs a value, and the next word is the option " + other + "; " + option + ": "});
  };
  expect_other({"train", "--dump-passes", "--dry-run"}, "--dump-passes", "--dry-run");
  expect_other({"train", "--dump-passes", "--train.steps=1"}, "--dump-passes", "--train.steps");
  expect_other({"train", "--train.steps", "1", "--disable-pass", "--replay=2"}, "--disable-pass", "--replay");
  expect_other({"train", "--plan", "--help"}, "--plan", "--help");
  expect_other({"memory", "--plan", "--json"}, "--plan", "--json");
  expect_refusal({"inspect", "graph", "two-layer", "--explain", "--json"}, {"--explain needs a value"});
  expect_refusal({"train", "two-layer", "--dump-passes=", "--dry-run"}, {"--dump-passes= is empty; name one"});
  expect_refusal({"memory", "two-layer", "--plan=", "--json"}, {"--plan= is empty; name one"});
  expect_refusal({"train", "two-layer", "--nosuch=", "--dry-run"}, {"unknown option --nosuch"});
  // A word that is no option is a value, whatever it begins with.
  expect_refusal({"generate", "--from", "--nosuch", "--prompt=a"}, {"--nosuch"});
}

TEST_F(BadInput, FlagsTakeNoValue) {
  for (const char* value : {"-1", "0", "1", "true", "false", "off", ""}) {
    const auto expect_flag = [&](std::vector<std::string> words, const std::string& flag) {
      words.push_back(flag + "=" + value);
      expect_refusal(words, {flag + " is a flag and takes no value; leave out \"=" + value + "\"; see trireme "});
    };
    expect_flag({"train", "two-layer"}, "--dry-run");
    expect_flag({"train", "two-layer"}, "--overwrite");
    expect_flag({"memory", "two-layer"}, "--json");
    expect_flag({"inspect", "sharding", "two-layer"}, "--collectives");
    expect_flag({"bench", "step", "two-layer"}, "--json");
  }
}

TEST_F(BadInput, PassesThatCanBeLeftOutAreListed) {
  const std::string error = refused({"train", "tiny.toml", "--disable-pass=something-else"});
  expect_part(error, "there is no pass 'something-else'; those that can be left out are ");
  std::string listed = error.substr(error.find(" are ") + 5);
  listed.erase(listed.find_last_not_of('\n') + 1);
  for (std::size_t begin = 0; begin < listed.size();) {
    const std::size_t end = std::min(listed.find(", ", begin), listed.size());
    done({"train", "tiny.toml", "--dry-run", "--disable-pass=" + listed.substr(begin, end - begin)});
    begin = end + 2;
  }
}

// The library that reads the command line has words of its own, for those who know it.
TEST_F(BadInput, OptionsAreRefusedInPlainWords) {
  const std::vector<std::string> generate = {"generate", "--from=run", "--prompt=a"};
  const auto expect_generate = [&](const std::string& word, const std::string& part) {
    std::vector<std::string> words = generate;
    words.push_back(word);
    expect_refusal(words, {"error: " + part + "; see trireme generate --help"});
  };
  expect_generate("--from=other", "--from was given twice; give it once");
  expect_generate("--json=maybe", "--json is a flag and takes no value; leave out \"=maybe\"");
  expect_generate("--tokens=blah", "--tokens must be a whole number from 1 to 1073741824, got blah");
  expect_generate("--top-p=-7", "--top-p must be a number from 0 to 1, got -7");
  expect_generate("--step=1.5", "--step must be a whole number, got 1.5");
  expect_generate("--tokens", "--tokens needs a value");
  expect_refusal({"generate", "--from=", "--prompt", "a"}, {"--from= is empty"});
  expect_generate("--step=99999999999999999999",
                  "--step must be a whole number of at most 9223372036854775807, got 99999999999999999999");
  expect_refusal({"eval", "--from=run", "--step", "99999999999999999999"},
                 {"--step must be a whole number of at most 9223372036854775807, got 99999999999999999999"});
  expect_refusal({"bench"}, {"bench needs one of step, "});
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"train"}, {"generate"}, {"inspect"}, {"simulate"}, {"tokenize"}, {"bench", "overlap"}}) {
    std::vector<std::string> words = command;
    words.emplace_back("--help");
    const std::string help = done(words).out;
    for (const char* part : {"INT", "FLOAT", ":{", "NUMBER:", " in ["}) expect_none(help, part);
  }
  for (const char* part : {"micro-batches of a step (default 0)", "columns of the picture (default 0)"})
    expect_none(done({"inspect", "--help"}).out, part);
}

TEST_F(BadInput, NamesOfOtherSystems) {
  expect_refusal({"train", "tiny.toml", "--zero_optimization.stage=3"}, {"did you mean parallel.zero?"});
  expect_refusal({"train", "tiny.toml", "--context-parallel-size=2"}, {"there is no context parallelism"});
  expect_key_refused("parallel.context_parallel_size=2", {"there is no context parallelism"});
  expect_refusal({"train", "tiny.toml", "--tensor-parallel-size=2"}, {"did you mean --parallel.mesh=tp=N?"});
  expect_refusal({"train", "tiny.toml", "--fp16"}, {"did you mean --train.precision=fp16?"});
}

// A name in quotes, as a file has it.
TEST_F(BadInput, AnnotationsInQuotesAreTaken) {
  for (const char* pattern : {"\"*.up.weight\"", "'*.up.weight'", "*.up.weight"})
    done({"train", "tiny.toml", "--dry-run", "--parallel.mesh=tp=2",
          std::string("--parallel.sharding.") + pattern + "=out:tp"});
}

// A number below the least is not taken for the largest that there is, nor for none.
TEST_F(BadInput, NumbersBelowTheLeast) {
  const std::string any = " must be a whole number from 0 to 18446744073709551615, got -7";
  expect_refusal({"tokenize", "--train=300", "--min-frequency=-7", "--out=new.json", "text.txt"},
                 {"--min-frequency" + any});
  expect_refusal({"plan", "tiny.toml", "--cluster=h100", "--seed=-7"}, {"--seed" + any});
  expect_refusal({"simulate", "tiny.toml", "--cluster=h100", "--width=-7"}, {"--width must be ", "from 1 "});
  expect_refusal({"inspect", "schedule", "--stages=2", "--micro-batches=4", "--width=-7"}, {"--width must be "});
}

TEST_F(BadInput, ClustersToChooseFromAndOneToFitOn) {
  expect_refusal({"fit", "tiny.toml", "--cluster=a100", "--clusters=h100"}, {"--clusters", "--within"});
  expect_refusal({"fit", "tiny.toml", "--cluster=a100", "--tokens=1B", "--within=1d"}, {"--cluster ", "--clusters"});
}

TEST_F(BadInput, Eval) {
  expect_refusal({"eval", "tiny.toml"}, {"--from"});
  expect_refusal({"eval", "tiny.toml", "--from=missing"}, {"missing", "no such folder"});
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=1"});
  expect_refusal({"eval", "tiny.toml", "--from=run", "--step=7"}, {"step 7", "1"});
  expect_refusal({"eval", "tiny.toml", "--from=run", "--data.holdout=0"}, {"held out", "data.eval"});
  expect_refusal({"eval", "tiny.toml", "--from=run", "--model.width=32"}, {"model.width = 32", "16"});
}

}  // namespace
}  // namespace trireme::testing
