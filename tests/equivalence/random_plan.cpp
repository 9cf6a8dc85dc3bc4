#include "equivalence/random_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "equivalence/pipedream_reference.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/generate.h"

namespace trireme::testing {
namespace {

class Draw {
 public:
  Draw(std::uint32_t seed, int max_ranks) : max_ranks_(max_ranks), random_(seed) {
    plan_.seed = seed;
    plan_.technique = plan_techniques()[seed % plan_techniques().size()];
  }

  RandomPlan run() {
    plan_.asynchronous_pipeline = plan_.technique.starts_with("pipedream");
    const std::string model = draw_model();
    const bool low = plain_.train.precision != train::Precision::f32;
    plan_.tolerance = low ? kLowPrecision : Tolerance{2e-5, 5e-4};
    if (technique("quantize")) allow({5e-4, 0.05});
    // A gradient's code that tips is wrong by up to a quarter. One rounding error of f32 in the weights comes to 0.08:
    // TRIREME_PLAN=31 TRIREME_PLAN_OWN=4 shows it.
    if (technique("fp8")) allow({1e-2, 0.25});
    const ir::Mesh mesh = draw_mesh(model);
    if (mesh.size_of("tp") == 3 && !reads_images(plain_)) share_heads_by_three();
    draw_micro_batches(model, mesh);
    config() = plain_;
    draw_memory(model);
    draw_order(mesh);
    plan_.reference = plain_;
    if (sharded_reference(mesh)) {
      plan_.reference = over_mesh(plain_, without_stages(mesh));
      plan_.reference.parallel.overlap = config().parallel.overlap;
    }
    draw_exchange(mesh);
    // Every rank has scales of its own, those of the rows and columns that it has.
    if (technique("fp8")) {
      plan_.reference = over_mesh(plain_, without_stages(mesh));
      plan_.reference.parallel.sequence = config().parallel.sequence;
    }
    config().parallel.mesh = mesh.str();
    config().train.micro_batch = plain_.train.micro_batch / mesh.size_of("dp");
    if (technique("limit")) draw_limit();
    plan_.text = text(model);
    return std::move(plan_);
  }

 private:
  std::string one_of(const std::vector<std::string>& choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random_)];
  }
  int number(const std::vector<std::string>& choices) { return std::stoi(one_of(choices)); }
  bool coin() { return one_of({"0", "1"}) == "1"; }
  bool technique(std::string_view name) const { return plan_.technique == name; }
  train::Config& config() { return plan_.config; }

  static std::string without_stages(const ir::Mesh& mesh) {
    std::string same;
    for (const ir::Mesh::Axis& axis : mesh.axes)
      if (axis.name != "pp") same += fmt::format("{}{}={}", same.empty() ? "" : ",", axis.name, axis.size);
    return same.empty() ? "dp=1" : same;
  }

  // Sums of shards are rounded to 16 bits before they are added. Batch norms make much of that: the reference of images
  // is sharded as well, and makes convolutions in the same parts.
  bool sharded_reference(const ir::Mesh& mesh) const {
    return plain_.train.precision != train::Precision::f32 && reads_images(plain_) &&
           mesh.ranks() > mesh.size_of("pp") * mesh.size_of("dp");
  }

  std::string draw_model() {
    std::string model = one_of({"gpt2", "gpt2", "llama", "llama", "mlp", "mlp", "convnet", "convnet", "resnet18"});
    if (technique("spatial")) model = one_of({"convnet", "convnet", "resnet18"});
    if (technique("sharded") || technique("distil") || technique("quantize") || technique("fp8"))
      model = one_of({"gpt2", "llama"});
    if (technique("prune")) model = one_of({"gpt2", "llama", "mlp", "convnet"});
    if (plan_.asynchronous_pipeline) model = one_of({"gpt2", "llama", "mlp"});
    const bool residual = model == "resnet18";
    // Of the wider ones something is worth offloading.
    wide_ = !residual && !technique("distil") && !technique("fp8") &&
            (technique("limit") || (plan_.asynchronous_pipeline ? coin() : one_of({"0", "0", "1"}) == "1"));
    train::Config plain = wide_ ? wider_model(model) : small_model(model);
    plain.train.batch = 12;
    if (!reads_images(plain) && !wide_) plain.model.context = 20;  // which tp divides
    if (!residual) plain.model.layers = model == "convnet" || wide_ ? 3 : number({"3", "4", "6"});
    plain.model.dropout = coin() ? 0.2 : 0;
    plain.train.precision = one_of({"f32", "f32", "bf16", "fp16"});
    plain.train.loss_scale = 1;  // no step may be skipped here
    // AdamW would turn the rounding of 16 bits, where a gradient is nearly zero, into full steps.
    plain.train.optimizer = plain.train.precision == train::Precision::f32 ? one_of({"adamw", "sgd"}) : "sgd";
    if (residual) {
      // Of deep stacks of batch norms, one step of SGD over many rows is what can be compared closely.
      plan_.steps = 1;
      plain.train.batch = 96;
      plain.train.precision = "f32";
      plain.train.optimizer = "sgd";
    }
    plain.train.clip = coin() ? 0.5 : 0;
    if (plan_.asynchronous_pipeline) {  // as far as the reference goes
      plan_.steps = 4;
      plain.train.precision = one_of({"f32", "f32", "bf16"});
      plain.train.optimizer =
          plain.train.precision == train::Precision::f32 ? one_of({"adamw", "adamw", "sgd"}) : "sgd";
      plain.model.dropout = 0;
      plain.model.tie_embeddings = false;
    }
    if (technique("fp8")) {  // products whose sizes are multiples of 16
      plain.train.precision = "fp8";
      plain.train.optimizer = "sgd";
      plain.model.width = 64;
      plain.model.head_dim = 16;
      plain.model.ffn = 128;
      plain.model.context = 16;
    }
    if (technique("distil")) draw_teacher(plain);
    if (technique("quantize")) {
      // A code that tips makes a difference of a whole step, so a few updates are compared.
      plan_.steps = 2;
      plain.train.quantize = "int8";
      plain.train.precision = "f32";
    }
    const bool exchanges = technique("server") || technique("compress");
    if (technique("prune") || (exchanges && !residual && one_of({"0", "0", "1"}) == "1")) draw_pruning(model, plain);
    // So that an update is more than the rounding of the weights.
    if (plain.train.optimizer == train::Optimizer::sgd)
      plain.train.lr = residual || plan_.asynchronous_pipeline ? 0.01 : 0.05;
    // Of many updates in 16 bits, whose rounding grows with the way that weights come.
    if (plan_.asynchronous_pipeline && plain.train.precision == train::Precision::bf16) plain.train.lr = 0.003;
    // By the seed itself: what is drawn stays the same with and without documents.
    if (!reads_images(plain) && plan_.seed % 3 == 2) plain.model.document_end = 5;
    train::resolve_model(plain, plain.model.vocab);
    plain_ = plain;
    return model;
  }

  // A teacher of which the repository has the weights.
  void draw_teacher(train::Config& plain) {
    plain.model.vocab = 67;
    plain.model.context = 16;
    plain.distil.teacher = source_dir() + "/tests/reference/distil_teacher";
    plain.distil.hidden = coin() ? 0.3 : 0;
  }

  // Scores that rounding decides would prune another element, so single ones go by numbers that are drawn.
  void draw_pruning(const std::string& model, train::Config& plain) {
    std::vector<std::string> slices = {"neurons"};
    if (model == "gpt2" || model == "llama") slices.emplace_back("heads");
    if (model == "convnet") slices = {"channels"};
    const bool whole = coin();
    plain.prune.pattern = whole ? one_of(slices) : "unstructured";
    const bool f32 = plain.train.precision == train::Precision::f32;
    plain.prune.method = whole && f32 ? one_of({"magnitude", "movement", "random"}) : "random";
    plain.prune.schedule = one_of({"oneshot", "gradual"});
    plain.prune.begin = 1;
    plain.prune.end = 2;
    plain.prune.every = 1;
    // In bf16 one rounding error of f32 in the weights comes to 0.9 of the tolerance in four steps, and to 0.6 in
    // three: TRIREME_PLAN=72 TRIREME_PLAN_STEPS=4 TRIREME_PLAN_OWN=4 shows it.
    plan_.steps = f32 ? 4 : 3;
  }

  ir::Mesh draw_mesh(const std::string& model) {
    const bool stages = technique("messages") || technique("schedule") || plan_.asynchronous_pipeline;
    const bool images = model == "convnet" || model == "resnet18";
    const bool spatial = technique("spatial") || (images && coin());
    for (;;) {
      std::vector<std::pair<std::string, int>> axes;
      axes.emplace_back("pp", stages ? number({"2", "2", "3", "4"}) : number({"1", "1", "1", "2", "2", "3", "4"}));
      axes.emplace_back("dp", technique("compress") ? number({"2", "3"}) : number({"1", "1", "2", "3"}));
      // Heads divide; columns and channels need not.
      const std::vector<std::string> shards = images           ? std::vector<std::string>{"1", "1", "1", "2", "3"}
                                              : model == "mlp" ? std::vector<std::string>{"1", "1", "2", "3", "4"}
                                                               : std::vector<std::string>{"1", "1", "2", "2", "4"};
      axes.emplace_back("tp", technique("sharded") ? number({"2", "2", "4"}) : number(shards));
      // By the seed itself, as documents are.
      const bool words = (model == "gpt2" || model == "llama") && !wide_ && !technique("fp8") && !technique("distil");
      if (words && plan_.seed % 4 == 1 && axes.back().second == 2) axes.back().second = 3;
      if (spatial) {
        axes.emplace_back("h", number({"1", "2", "2", "3"}));
        axes.emplace_back("w", axes.back().second == 1 ? 2 : number({"1", "1", "2"}));
      }
      int ranks = 1;
      for (const auto& axis : axes) ranks *= axis.second;
      if (ranks > max_ranks_) continue;
      std::shuffle(axes.begin(), axes.end(), random_);
      std::erase_if(axes, [](const auto& axis) { return axis.second == 1; });
      std::string mesh;
      for (const auto& [name, size] : axes) mesh += fmt::format("{}{}={}", mesh.empty() ? "" : ",", name, size);
      return ir::parse_mesh(mesh.empty() ? "dp=1" : mesh);
    }
  }

  void share_heads_by_three() {
    plain_.model.heads = 6;
    plain_.model.kv_heads = plain_.model.family == "llama" ? 3 : 6;
    plain_.model.head_dim = plain_.model.width / plain_.model.heads;
    plain_.model.context = 24;
    train::resolve_model(plain_, plain_.model.vocab);
  }

  // Stages that a user lists: one layer each, and the rest in the last.
  void list_stages(const ir::Mesh& mesh) {
    const train::ParallelConfig& parallel = config().parallel;
    const std::int64_t chunks =
        parallel.pipeline == train::Pipeline::interleaved ? static_cast<std::int64_t>(parallel.pipeline.argument()) : 1;
    const std::int64_t stages = mesh.size_of("pp") * chunks;
    if (mesh.size_of("pp") == 1 || config().model.family == "resnet" || stages >= config().model.layers) return;
    config().parallel.stages.assign(static_cast<std::size_t>(stages), 1);
    config().parallel.stages.back() = config().model.layers - stages + 1;
  }

  // Each replica has as many rows of every micro-batch.
  void draw_micro_batches(const std::string& model, const ir::Mesh& mesh) {
    std::vector<std::string> counts;
    for (const int micro_batches : {1, 2, 3, 4, 6})
      if ((model != "resnet18" || micro_batches <= 3) && plain_.train.batch / micro_batches % mesh.size_of("dp") == 0 &&
          (!technique("pipedream-2bw") || micro_batches >= mesh.size_of("pp")))
        counts.push_back(std::to_string(micro_batches));
    plain_.train.micro_batch = plain_.train.batch / number(counts);
  }
  int micro_batches() const { return static_cast<int>(plain_.train.batch / plain_.train.micro_batch); }

  void draw_memory(const std::string& model) {
    config().memory.remat = one_of({"none", "none", "every:2", "sqrt", "selective", "optimal", "full"});
    // Its layers make nothing else to recompute.
    if (model == "mlp") config().memory.remat = one_of({"none", "every:2"});
    config().memory.offload =
        !wide_ && model != "resnet18"
            ? "none"
            : one_of({"none", "activations", "optimizer", "weights", "activations,optimizer", "all"});
    config().memory.offload_policy = one_of({"all", "dynamic"});
  }

  void draw_order(const ir::Mesh& mesh) {
    config().parallel.pipeline = one_of({"sequential", "gpipe", "1f1b", "zero-bubble", "zero-bubble:auto",
                                         mesh.size_of("pp") == 2 && coin() ? "interleaved:3" : "interleaved:2"});
    if (technique("schedule")) config().parallel.pipeline = "file:" + own_schedule(mesh.size_of("pp"));
    if (plan_.asynchronous_pipeline) config().parallel.pipeline = plan_.technique;
    config().runtime.overlap_wgrad = coin();
    config().parallel.overlap = coin();
    config().parallel.bucket.count = coin() ? 2000 : std::size_t{25} << 20;
    if (plan_.seed % 4 == 2) list_stages(mesh);
  }

  // A schedule that no generator makes: neighbouring actions change places wherever the result can run.
  std::string own_schedule(int stages) {
    const program::PipelineName from = program::parse_pipeline(one_of({"gpipe", "1f1b", "zero-bubble"}));
    program::Schedule schedule =
        program::make_schedule({.pipeline = from, .stages = stages, .micro_batches = micro_batches()});
    for (int i = 0; i < 40; ++i) {
      program::Schedule changed = schedule;
      auto& actions = changed.stages[static_cast<std::size_t>(i % stages)];
      const auto at = std::uniform_int_distribution<std::size_t>(0, actions.size() - 2)(random_);
      std::swap(actions[at], actions[at + 1]);
      try {
        program::check_schedule(changed);
        schedule = changed;
      } catch (const Error&) {  // not that one
      }
    }
    const std::filesystem::path file =
        std::filesystem::path(::testing::TempDir()) / fmt::format("random_plan_{}_{}.schedule", plan_.seed, ::getpid());
    std::ofstream(file) << program::to_text(schedule);
    return file.string();
  }

  // How gradients and states are shared, which some plans compare with another reference.
  void draw_exchange(const ir::Mesh& mesh) {
    const bool sharded = mesh.size_of("tp") > 1;
    if (mesh.size_of("dp") > 1) config().parallel.zero = number({"0", "1", "2", "3"});
    if (sharded && !reads_images(config())) config().parallel.sequence = coin();
    if (sharded && (technique("sharded") || one_of({"0", "0", "1"}) == "1")) config().parallel.async_tp = coin();
    if (technique("activations")) draw_activations(mesh);
    if (technique("messages")) draw_messages(mesh);
    if (technique("compress")) draw_compression(mesh);
    if (technique("server")) draw_server(mesh);
  }

  void draw_activations(const ir::Mesh& mesh) {
    const bool sharded = mesh.size_of("tp") > 1;
    if (sharded && !config().parallel.sequence && coin()) {
      config().memory.activations = "sharded";  // as they are
      return;
    }
    if (plan_.steps == 1) return;
    // Blocks of int8 follow the shards: the reference has them too.
    const bool low = config().train.precision != train::Precision::f32;
    config().memory.activations = low ? "int8" : one_of({"bf16", "int8"});
    config().memory.remat = "none";  // which decides what is saved, and so what is rounded
    plan_.reference = plain_;
    plan_.reference.memory.activations = config().memory.activations;
    plan_.reference.parallel.sequence = config().parallel.sequence;
    plan_.reference = over_mesh(plan_.reference, without_stages(mesh));
    allow({2e-4, 0.05});
  }

  void draw_messages(const ir::Mesh& mesh) {
    config().parallel.stage_dtype = one_of({"bf16", "int8"});
    plan_.reference = config();  // with the same stages, and nothing else
    plan_.reference.memory = {};
    plan_.reference.parallel.zero = 0;
    plan_.reference.parallel.overlap = false;
    plan_.reference.runtime.overlap_wgrad = false;
    plan_.reference.train.micro_batch = plain_.train.micro_batch;
    plan_.reference = over_mesh(plan_.reference, mesh.str());
    allow({2e-4, 0.05});
  }

  // The reference compresses the gradients of as many replicas, and where matrices are sharded those of the shards.
  void draw_compression(const ir::Mesh& mesh) {
    const bool served = config().parallel.server != train::Server::none;
    std::vector<std::string> kinds = {"bf16", "int8"};
    if (!served) kinds.emplace_back("powersgd:2");
    const bool sgd = config().train.optimizer == train::Optimizer::sgd;
    // Which keeps momenta of each rank's own terms: no score is made of these.
    const bool scored = config().prune.method == train::Prune::movement;
    if (sgd && plan_.steps > 1 && !scored) kinds.emplace_back("topk:0.2");
    // Signs that the rounding of 16 bits decides are as far from the reference's as the reference's own.
    const bool f32 = config().train.precision == train::Precision::f32;
    if (!served && plan_.steps > 1 && f32 && !(sgd && scored)) kinds.emplace_back("onebit");
    config().parallel.compress = one_of(kinds);
    const auto kind = config().parallel.compress.kind();
    if (kind == train::Compress::topk || kind == train::Compress::onebit) config().parallel.compress_warmup = 1;
    plan_.reference = plain_;
    plan_.reference.parallel.compress = config().parallel.compress;
    plan_.reference.parallel.compress_warmup = config().parallel.compress_warmup;
    plan_.reference.parallel.server = config().parallel.server;
    const std::string without_images = fmt::format("dp={},tp={}", mesh.size_of("dp"), mesh.size_of("tp"));
    plan_.reference = over_mesh(plan_.reference, sharded_reference(mesh) ? without_stages(mesh) : without_images);
    if (sharded_reference(mesh)) plan_.reference.parallel.overlap = config().parallel.overlap;
    allow({2e-3, 0.05});
  }

  // One worker of an asynchronous server trains as without it; several would not train the same twice.
  void draw_server(const ir::Mesh& mesh) {
    config().parallel.server = mesh.size_of("dp") > 1 ? "sync" : one_of({"sync", "async", "ssp:1"});
    config().parallel.servers = number({"1", "2"});
    config().parallel.zero = 0;
    if (mesh.size_of("dp") > 1 && coin()) draw_compression(mesh);
  }

  // As much as needs something to be recomputed or offloaded.
  void draw_limit() {
    train::Config open = config();
    open.memory = {};
    const train::Registry registry;
    const std::size_t plain = train::compile(open, registry, {.threads = 2}).arena_bytes();
    config().memory.remat = one_of({"none", "optimal"});
    config().memory.offload = one_of({"activations", "all"});
    config().memory.offload_policy = "dynamic";
    config().memory.limit.count = plain * static_cast<std::size_t>(number({"95", "85", "70"})) / 100;
  }

  void allow(const Tolerance& at_least) {
    plan_.tolerance.loss = std::max(plan_.tolerance.loss, at_least.loss);
    plan_.tolerance.weights = std::max(plan_.tolerance.weights, at_least.weights);
  }

  std::string text(const std::string& model) {
    const train::Config& c = config();
    std::string schedule = c.parallel.pipeline.text();
    if (technique("schedule")) schedule = "file";
    std::string line = fmt::format(
        "seed {}: {} · {}{} {} {} m={} dropout {} clip {} mesh {} {} zero {} remat {} bucket {} overlap {} wgrad {}",
        plan_.seed, plan_.technique, wide_ ? "wide " : "", model, plain_.train.precision, plain_.train.optimizer,
        micro_batches(), plain_.model.dropout, plain_.train.clip, c.parallel.mesh, schedule, c.parallel.zero,
        c.memory.remat, c.parallel.bucket.count, c.parallel.overlap, *c.runtime.overlap_wgrad);
    if (c.model.document_end >= 0) line += " documents";
    if (!c.parallel.stages.empty()) line += fmt::format(" stages {}", fmt::join(c.parallel.stages, ","));
    if (c.parallel.sequence) line += " sequence";
    if (c.parallel.async_tp) line += " async_tp";
    if (c.parallel.compress != train::Compress::none) line += fmt::format(" compress {}", c.parallel.compress);
    if (c.parallel.server != train::Server::none)
      line += fmt::format(" server {} × {}", c.parallel.server, c.parallel.servers);
    if (!c.memory.offload.none()) line += fmt::format(" offload {} ({})", c.memory.offload, c.memory.offload_policy);
    if (c.memory.activations != train::Activations::full) line += fmt::format(" activations {}", c.memory.activations);
    if (c.parallel.stage_dtype != train::StageDtype::same) line += fmt::format(" messages {}", c.parallel.stage_dtype);
    if (c.memory.limit.count > 0) line += fmt::format(" limit {}", c.memory.limit.count);
    if (c.prune.method != train::Prune::none)
      line += fmt::format(" prune {} {} {}", c.prune.method, c.prune.pattern, c.prune.schedule);
    if (!c.distil.teacher.empty()) line += fmt::format(" distil hidden {}", c.distil.hidden);
    if (c.train.quantize != train::TrainedCodes::none) line += fmt::format(" quantize {}", c.train.quantize);
    return line;
  }

  int max_ranks_;
  std::mt19937 random_;
  RandomPlan plan_;
  train::Config plain_;
  bool wide_ = false;
};

}  // namespace

const std::vector<std::string>& plan_techniques() {
  static const std::vector<std::string> all = {
      "none",     "compress", "server", "spatial",       "pipedream", "activations", "sharded",  "messages",
      "schedule", "limit",    "server", "pipedream-2bw", "prune",     "distil",      "quantize", "fp8"};
  return all;
}

RandomPlan draw_plan(std::uint32_t seed, int max_ranks) { return Draw(seed, max_ranks).run(); }

Trajectory train_reference(const RandomPlan& plan, const Moved& moved) {
  if (!plan.asynchronous_pipeline) {
    // Over the link that stages have sums are taken in another order: batch norms over a few rows in 16 bits make much
    // of that.
    const bool staged = ir::parse_mesh(plan.config.parallel.mesh).size_of("pp") > 1;
    Trained reference(plan.reference, {.threads = 2, .link = staged ? kWaitingSends : ""});
    if (moved.by > 0) move_weights(reference, moved);
    return train_plan(reference, plan.reference, plan.steps);
  }
  PipedreamReference reference(plan.config);
  Trajectory result;
  result.start = reference.weights();
  reference.train(plan.steps);
  result.weights = reference.weights();
  result.losses = reference.losses();
  return result;
}

}  // namespace trireme::testing
