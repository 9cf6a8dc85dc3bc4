#pragma once
#include <trireme/data.h>
#include <trireme/export.h>
#include <trireme/log.h>
#include <trireme/metrics.h>
#include <trireme/model.h>
#include <trireme/options.h>
#include <trireme/registry.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

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

  // Called once after each step, on the thread that called run(). It may save, evaluate and generate. What it throws
  // ends the run and leaves run(): the trainer then holds the state after that step. Where ranks go at their own pace
  // (pipedream, pipedream-2bw, servers async and ssp) it is called on another thread while later steps are under way,
  // may only look and stop, and the state is that of the step at which they came together.
  void on_step(std::function<Next(const Metrics&)> callback);
  // Trains until options.steps, the callback's Next::stop, or max_time; called again, goes on from there. Gives the
  // last step's metrics, with the held-out loss when all steps are done. A step that is not finite is an Error that
  // names the tensor that went bad; its update is withheld. A value of the held-out data that is not finite is a
  // warning (TrainOptions::log).
  Metrics run();
  // Mean loss on held-out data, over at most so many batches; nothing when nothing is held out. A value of these
  // that is not finite, and makes the loss so, is an Error that names it.
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
  // Where they are not finite for a pixel that is not, an Error names it.
  std::vector<float> forward_image(const std::vector<float>& pixels);
  // What the model predicts for one row of inputs by their names: all that its predictions read; others may be given,
  // but no targets. For models of inputs that the data name. A value that is not finite, and makes the prediction so,
  // or an integer that an embedding has no row for, is an Error that names it.
  std::vector<float> forward_inputs(const NamedInputs& inputs);

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
