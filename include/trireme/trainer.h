#pragma once
#include <trireme/data.h>
#include <trireme/export.h>
#include <trireme/log.h>
#include <trireme/metrics.h>
#include <trireme/model.h>
#include <trireme/registry.h>

#include <array>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// How to train: section [train] of a configuration, with the same names, values and refusals.
struct TrainOptions {
  std::int64_t steps = 300;
  std::int64_t batch = 32;          // sequences or images in one update, over all ranks
  std::int64_t micro_batch = 0;     // rows per pass; 0: the whole share of a replica
  std::string optimizer = "adamw";  // adamw | sgd
  double lr = 1e-3;
  double min_lr = 0;
  std::int64_t warmup = 20;
  std::string schedule = "cosine";  // cosine | linear | constant | wsd:FRACTION
  std::int64_t decay_steps = 0;     // 0: steps
  double momentum = 0.9;            // of sgd
  std::int64_t eval_every = 0;      // 0: at the end
  std::string max_time = "";        // "3h50m"
  double weight_decay = 0.1;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double clip = 1;                // global gradient norm; 0: off
  std::string precision = "f32";  // f32 | bf16 | fp16
  double loss_scale = 65536;      // of fp16, at first
  std::int64_t loss_scale_window = 2000;
  std::int64_t seed = 1;

  std::string name = "custom";  // model.family in what is saved, when the model is given as a function
  std::string dir = "";         // run folder: metrics, log and checkpoints; "": nothing is written but by save()
  bool resume = false;          // continue the newest checkpoint in `dir`
  std::string checkpoint_every = "10min";  // steps ("100") or a time
  std::int64_t keep = 2;                   // checkpoints kept
  LogSink log = {};
};

// Where and how to compute: sections [parallel], [memory] and [runtime]. What this version cannot do is refused by
// name.
struct Plan {
  std::string mesh = "auto";  // "pp=2,dp=2,tp=2"
  std::vector<std::int64_t> stages = {};
  std::int64_t zero = 0;
  bool sequence = false;
  std::string pipeline = "1f1b";
  std::string bucket = "25MiB";
  bool overlap = true;
  std::string allreduce = "auto";
  std::string compress = "none";
  std::string server = "none";
  std::int64_t servers = 1;
  std::string timeout = "60s";
  std::string remat = "none";
  std::string offload = "none";
  std::string offload_policy = "dynamic";
  std::string offload_tier = "auto";
  std::string offload_update = "device";
  std::string offload_dir = "";  // "": the run folder
  std::string activations = "full";
  std::string limit = "";  // "8GiB"
  std::string device = "auto";
  std::int64_t threads = 0;  // per rank; 0: the cores this process may use, shared out
  std::string transport = "auto";
  std::string link = "";
  std::string weight_gradients = "auto";          // "beside": on a stream of their own; or "in_line"
  std::string trace = "";                         // file: Chrome trace of the run
  std::map<std::string, std::string> seeds = {};  // shardings by parameter: {"*.up.weight", "out:tp"}
};

// The memory plan, known to the byte before anything is allocated. Prints as a table.
struct MemoryReport {
  struct Rank {
    std::uint64_t peak_bytes = 0;
    std::map<std::string, std::uint64_t> categories = {};  // alive at the peak; they and `padding` sum to it
    std::uint64_t padding = 0;
    bool server = false;  // keeps parameters for the workers
  };
  std::vector<Rank> ranks;  // the workers, then the servers
  std::uint64_t parameters = 0;
  std::string text;
};
TRIREME_API std::ostream& operator<<(std::ostream& out, const MemoryReport& report);

// What a run does after a step.
enum class Next { go, stop };

struct SampleOptions {
  std::int64_t tokens = 200;
  double temperature = 0.8;  // 0: the likeliest token each time
  std::int64_t top_k = 0;    // draw among so many of the likeliest; 0: all
  double top_p = 1;          // then among the fewest that have this probability together
  std::uint64_t seed = 1;
};

// A model that is there: a Hugging Face folder (config.json and safetensors of a GPT-2 or Llama), whose weights are
// trained on and whose tokenizer reads text. The data's context may be smaller than the positions it has.
struct Pretrained {
  std::string folder;
};

struct Parameter {
  std::string name;
  Extents shape;
};

// A training run. Construction opens the data, builds, checks and plans: whatever can be refused is refused there with
// an Error, before a byte is allocated or a file written. It never prints, exits or installs a signal handler, and any
// number of trainers can live in one process.
//
//   Trainer t{ByteLM{}, text_files({"book.txt"}), {.steps = 300, .batch = 32, .lr = 3e-3}};
//   std::cout << t.memory();
//   t.run();
//   t.save("runs/bytelm");
class TRIREME_API Trainer {
 public:
  Trainer(Model model, const Data& data, const TrainOptions& options = {}, const Plan& plan = {});
  // A family of the registry. Its context, vocabulary, image and classes are the data's.
  Trainer(const ModelConfig& model, const Data& data, const TrainOptions& options = {}, const Plan& plan = {},
          const Registry& registry = {});
  Trainer(const Pretrained& model, const Data& data, const TrainOptions& options = {}, const Plan& plan = {});
  ~Trainer();
  Trainer(Trainer&& other) noexcept;
  Trainer& operator=(Trainer&& other) noexcept;

  MemoryReport memory() const;
  std::uint64_t parameters() const;

  // Called between steps, on the thread that called run(). It may save, evaluate and generate. What it throws ends the
  // run and leaves run(): the trainer then holds the state after that step.
  void on_step(std::function<Next(const Metrics&)> callback);
  // Trains until options.steps, the callback's Next::stop, or max_time; called again, goes on from there. Gives the
  // last step's metrics, with the held-out loss when all steps are done. A step that is not finite is an Error that
  // names the tensor that went bad; its update is withheld.
  Metrics run();
  // Mean loss on held-out data, over at most so many batches; nothing when nothing is held out.
  std::optional<double> evaluate(std::int64_t batches = 32);

  // A run folder with this state, which the program's commands understand. Replaces a run that is there.
  void save(const std::string& folder);
  // Continues from the newest checkpoint of a run folder, whatever the mesh that wrote it.
  void load(const std::string& folder);

  // Continues a prompt: for models of tokens that predict [rows, context, vocab]; as text, for those trained on text.
  std::vector<std::int32_t> generate_tokens(const std::vector<std::int32_t>& prompt, const SampleOptions& options = {});
  std::string generate(const std::string& prompt, const SampleOptions& options = {});

  // The logits [context, vocab] of one sequence of the context's length: for models of tokens.
  std::vector<float> forward(const std::vector<std::int32_t>& tokens);
  // The logits [classes] of one image's pixels [size, size, channels], as the data give them: for models of images.
  std::vector<float> forward_image(const std::vector<float>& pixels);

  std::vector<Parameter> parameter_list() const;
  // A parameter or other f32 state by name, such as "blocks.0.up.weight", whole: what it is, and what it shall be.
  std::vector<float> values(const std::string& name);
  void set_values(const std::string& name, const std::vector<float>& values);

  // The weights as a folder that transformers loads; of GPT-2s and Llamas. `dtype`: f32, bf16 or f16. Refuses a folder
  // that is there.
  void export_huggingface(const std::string& folder, const std::string& dtype = "f32");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
