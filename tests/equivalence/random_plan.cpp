#include "equivalence/random_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "equivalence/drawn_sharding.h"
#include "equivalence/pipedream_reference.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/program/schedule/generate.h"

namespace trireme::testing {
namespace {

// Makes a configuration of what was chosen, and of its reference.
class PlanMaker {
 public:
  PlanMaker(std::uint32_t seed, int max_ranks) {
    plan_.seed = seed;
    plan_.choices = PlanChoices(seed, max_ranks);
  }

  RandomPlan run() {
    plan_.asynchronous_pipeline = has("schedule=pipedream|pipedream-2bw");
    make_model();
    make_training();
    mesh_ = make_mesh();
    config() = plain_;
    config().parallel.mesh = mesh_.str();
    config().train.micro_batch = plain_.train.micro_batch / mesh_.size_of("dp");
    make_memory();
    make_order();
    make_exchange();
    make_tolerance();
    plan_.reference = reference();
    if (has("limit=given")) make_limit();
    plan_.text = text();
    return std::move(plan_);
  }

 private:
  bool has(std::string_view expression) const { return plan_.choices.has(expression); }
  const std::string& chosen(const char* group) const { return plan_.choices[group]; }
  int number(const char* group) const { return plan_.choices.number(group); }
  std::string one_of(std::string_view name, const std::vector<std::string>& of) const {
    return plan_.choices.one_of(name, of);
  }
  train::Config& config() { return plan_.config; }
  bool low() const { return has("precision!=f32"); }
  bool words() const { return has("model=gpt2|llama"); }

  // ---- the model

  void make_model() {
    const std::string& model = chosen("model");
    const bool wide = has("width=wide");
    plain_ = wide ? wider_model(model) : small_model(model);
    // Of deep stacks of batch norms one step over many rows is what can be compared closely.
    plain_.train.batch = has("model=resnet18") ? 96 : std::max(12, 2 * number("micro-batches"));
    // The rows of an image model are its products' own: multiples of 16, however they are cut.
    if (has("precision=fp8") && !words()) plain_.train.batch *= 16;
    if (!has("model=resnet18")) plain_.model.layers = number("layers");
    plain_.model.dropout = std::stod(chosen("dropout"));
    if (words())
      make_words(wide);
    else
      make_images(wide);
    if (has("teacher=yes")) {  // of which the repository has the weights
      plain_.model.vocab = 67;
      plain_.model.context = 16;
      plain_.distil.teacher = source_dir() + "/tests/reference/distil_teacher";
      plain_.distil.hidden = plan_.choices.coin("hidden") ? 0.3 : 0;
    }
    train::resolve_model(plain_, plain_.model.vocab);
  }

  void make_words(bool wide) {
    models::ModelConfig& model = plain_.model;
    const bool even = has("sizes=even");
    const bool thirds = has("tp=3");
    model.vocab = wide ? (even ? 2496 : 2501) : (even ? 60 : 61);
    model.ffn = wide ? (even ? 480 : 509) : (even ? 96 : 50);
    // Which tp divides, or not: sequence parallelism needs equal shards.
    model.context = even || has("sequence=yes") ? (wide ? 48 : 24) : (wide ? 47 : 19);
    model.heads = thirds ? 6 : 4;
    if (has("precision=fp8")) {  // products whose sizes are multiples of 16, on every rank
      model.width = thirds ? 96 : 64;
      model.head_dim = 16;
      model.ffn = thirds ? 192 : 128;
      model.vocab = 61;
      model.context = thirds ? 48 : 16;
    } else {
      model.head_dim = wide ? 32 : 24 / model.heads;
    }
    model.kv_heads = has("key heads=one") ? 1 : has("key heads=half") ? model.heads / 2 : model.heads;
    if (has("tables!=as the family has them")) model.tie_embeddings = has("tables=tied");
    if (has("documents=yes")) model.document_end = 5;
  }

  void make_images(bool wide) {
    models::ModelConfig& model = plain_.model;
    const bool even = has("sizes=even");
    if (has("model=mlp")) model.width = wide ? (even ? 312 : 317) : (even ? 24 : 25);
    if (has("precision=fp8")) model.width = has("tp=3") ? 96 : 64;
    model.image = wide ? (even ? 40 : 37) : has("model=resnet18") ? (even ? 20 : 21) : (even ? 12 : 11);
  }

  // ---- how it is trained

  void make_training() {
    train::TrainConfig& train = plain_.train;
    train.precision = chosen("precision");
    train.loss_scale = 1;  // no step may be skipped here
    train.optimizer = chosen("optimizer");
    train.clip = std::stod(chosen("clip"));
    train.batch_stats = chosen("statistics");
    train.micro_batch = train.batch / number("micro-batches");
    if (has("rounded weights=int8")) train.quantize = "int8";
    // So that an update is more than the rounding of the weights.
    if (has("optimizer=sgd")) train.lr = has("model=resnet18") || plan_.asynchronous_pipeline ? 0.01 : 0.05;
    // Of many updates in 16 bits, whose rounding grows with the way that weights come.
    if (plan_.asynchronous_pipeline && low()) train.lr = 0.003;
    if (has("prune!=none")) make_pruning();
    if (plan_.asynchronous_pipeline) plan_.steps = 4;
    // A code that tips makes a difference of a whole step, so a few updates are compared.
    if (has("rounded weights=int8")) plan_.steps = 2;
    if (has("model=resnet18")) plan_.steps = 1;
  }

  // Scores that rounding decides would prune another element, so single ones go by numbers that are drawn.
  void make_pruning() {
    std::vector<std::string> slices = {"neurons"};
    if (words() && has("key heads!=one")) slices.emplace_back("heads");
    if (has("model=convnet")) slices = {"channels"};
    plain_.prune.pattern = has("prune=slices") ? one_of("slices", slices) : "unstructured";
    const bool exact = !low() && has("rounded weights=no") && has("activations=full|sharded") && has("messages=same");
    std::vector<std::string> methods = {"random"};
    if (has("prune=slices") && exact) {
      methods.emplace_back("magnitude");
      // Momenta of each rank's own terms make no score.
      if (has("compress!=topk:0.2") && !has("compress=onebit")) methods.emplace_back("movement");
    }
    plain_.prune.method = one_of("score", methods);
    // Of three steps, one that warms a compression up and two that prune leave none of the common kind.
    const bool few = low() && has("compress=topk:0.2|onebit");
    plain_.prune.schedule = few ? "oneshot" : one_of("pruning", {"oneshot", "gradual"});
    plain_.prune.begin = 1;
    plain_.prune.end = 2;
    plain_.prune.every = 1;
    // In 16 bits one rounding error of f32 in the weights grows from step to step: TRIREME_PLAN_OWN shows it.
    plan_.steps = low() ? 3 : 4;
  }

  // ---- the plan

  ir::Mesh make_mesh() const {
    std::vector<std::pair<std::uint32_t, std::string>> axes;
    for (const char* axis : {"pp", "dp", "tp", "h", "w"})
      if (number(axis) > 1)
        axes.emplace_back(plan_.choices.below(1U << 30, std::string("place of ") + axis),
                          fmt::format("{}={}", axis, number(axis)));
    std::sort(axes.begin(), axes.end());
    std::string mesh;
    for (const auto& [place, axis] : axes) mesh += (mesh.empty() ? "" : ",") + axis;
    return ir::parse_mesh(mesh.empty() ? "dp=1" : mesh);
  }

  void make_memory() {
    train::MemoryConfig& memory = config().memory;
    memory.remat = chosen("remat");
    memory.offload = chosen("offload");
    std::vector<std::string> policies = {"all", "dynamic"};
    if (has("model=convnet|resnet18") && memory.offload.activations) policies.emplace_back("conv");
    memory.offload_policy = has("limit=given") ? "dynamic" : one_of("policy", policies);
    memory.activations = chosen("activations");
  }

  void make_order() {
    train::ParallelConfig& parallel = config().parallel;
    int chunks = 1;
    if (has("schedule=interleaved")) {
      chunks = has("pp=2") && plan_.choices.coin("chunks") ? 3 : 2;
      parallel.pipeline = fmt::format("interleaved:{}", chunks);
    } else {
      parallel.pipeline = has("schedule=file") ? "file:" + own_schedule(chunks) : chosen("schedule");
    }
    config().runtime.overlap_wgrad = has("overlapped gradients=yes");
    parallel.overlap = has("overlap=yes");
    parallel.bucket.count = has("bucket=2000") ? 2000 : std::size_t{25} << 20;
    parallel.allreduce = chosen("all-reduce");
    parallel.stage_dtype = chosen("messages");
    if (has("stages=listed")) list_stages(number("pp") * chunks);
  }

  // Stages that a user lists: one layer each, and the rest in one of them.
  void list_stages(std::int64_t stages) {
    const std::int64_t layers =
        config().model.family == "resnet" ? 8 : config().model.layers;  // the blocks of resnet18
    if (stages > layers) return plan_.choices.set("stages", "balanced");
    config().parallel.stages.assign(static_cast<std::size_t>(stages), 1);
    config().parallel.stages[plan_.choices.below(static_cast<std::uint32_t>(stages), "longest stage")] +=
        layers - stages;
  }

  // A schedule that no generator makes: some stages follow another one than the rest, and neighbouring actions change
  // places wherever the result can run.
  std::string own_schedule(int& chunks) {
    const int stages = number("pp");
    const auto made = [&](const std::string& name) {
      return program::make_schedule(
          {.pipeline = program::parse_pipeline(name), .stages = stages, .micro_batches = number("micro-batches")});
    };
    program::Schedule schedule = made(one_of("file", {"gpipe", "1f1b", "zero-bubble", "interleaved:2"}));
    chunks = schedule.chunks;
    const auto runs = [](const program::Schedule& changed) {
      try {
        program::check_schedule(changed);
        return true;
      } catch (const Error&) {  // not that one
        return false;
      }
    };
    if (chunks == 1 && plan_.choices.coin("last stage")) {
      program::Schedule changed = schedule;
      changed.stages.back() = made(one_of("last stage's", {"gpipe", "1f1b", "zero-bubble"})).stages.back();
      if (runs(changed)) schedule = changed;
    }
    for (int i = 0; i < 40 + 10 * number("micro-batches"); ++i) {
      program::Schedule changed = schedule;
      auto& actions = changed.stages[static_cast<std::size_t>(i % stages)];
      const auto at =
          plan_.choices.below(static_cast<std::uint32_t>(actions.size()) - 1, "swap", static_cast<std::uint64_t>(i));
      std::swap(actions[at], actions[at + 1]);
      if (runs(changed)) schedule = changed;
    }
    const std::filesystem::path file =
        std::filesystem::path(::testing::TempDir()) / fmt::format("random_plan_{}_{}.schedule", plan_.seed, ::getpid());
    std::ofstream(file) << program::to_text(schedule);
    return file.string();
  }

  // How gradients and states are shared.
  void make_exchange() {
    train::ParallelConfig& parallel = config().parallel;
    parallel.zero = number("zero");
    parallel.sequence = has("sequence=yes");
    parallel.async_tp = has("async_tp=yes");
    parallel.compress = chosen("compress");
    if (has("compress=topk:0.2|onebit")) parallel.compress_warmup = 1;
    parallel.server = chosen("server");
    if (has("server!=none")) parallel.servers = std::stoi(one_of("servers", {"1", "2"}));
    const DrawnSharding drawn = draw_sharding(plan_.choices, plain_.model);
    parallel.sharding = drawn.annotations;
    over_dp_ = drawn.over_dp;
    if (over_dp_ && has("compress!=none")) send_all();
  }

  // A rank has all terms of what is annotated over dp, and of that nothing is compressed. Where all of a sum is sent,
  // nearly or exactly, the plan trains like one rank that compresses nothing, whichever sums those are.
  void send_all() {
    if (!plan_.choices.coin("all is sent")) return;
    // Two thin matrices of all ranks would be larger than the sum, and of signs nothing is exact.
    if (has("compress=powersgd:2|onebit")) return;
    // Replicas that compress momenta clip their own gradients.
    if (has("compress=topk:0.2") && has("clip!=0")) return;
    all_is_sent_ = true;
    if (has("compress=topk:0.2")) config().parallel.compress = "topk:1";
  }

  // As much as needs something to be recomputed or offloaded.
  void make_limit() try {
    train::Config open = config();
    open.memory = {};
    open.memory.activations = config().memory.activations;
    const train::Registry registry;
    const std::size_t plain = train::compile(open, registry, {.threads = 2}).arena_bytes();
    config().memory.limit.count = plain * std::stoull(one_of("percent", {"95", "90", "85"})) / 100;
  } catch (const Error& e) {
    plan_.refusal = e;
  }

  // ---- what it is compared with

  // In a way that the reference must have too.
  bool compresses() const { return has("compress!=none") && !all_is_sent_; }

  // The plainest plan that makes the same mathematics. What a rank rounds depends on what it has: then the reference
  // has the same axes.
  train::Config reference() const {
    const train::Config& c = plan_.config;
    train::Config plainest = plain_;
    const bool rounds_saved = has("activations=bf16|int8");
    // What is recomputed is not saved, and so not rounded.
    const bool staged = has("messages!=same") || (rounds_saved && has("remat!=none"));
    // Batch norms make much of sums of shards that are rounded to 16 bits before they are added.
    const bool sums_shards = low() && has("model=convnet|resnet18|mlp") &&
                             (over_dp_ || mesh_.ranks() > mesh_.size_of("pp") * mesh_.size_of("dp"));
    const bool whole = staged || rounds_saved || has("precision=fp8") || sums_shards;
    std::vector<std::string> axes;
    for (const ir::Mesh::Axis& axis : mesh_.axes) {
      const bool compressed = compresses() && (axis.name == "dp" || axis.name == "tp");
      const bool own_rows = has("statistics=local") && axis.name != "tp";
      if (axis.name == "pp" ? staged : whole || compressed || own_rows)
        axes.push_back(fmt::format("{}={}", axis.name, axis.size));
    }
    plainest.memory.activations = rounds_saved ? c.memory.activations.text() : "full";
    if (rounds_saved) {
      plainest.memory.remat = c.memory.remat;
      plainest.runtime.overlap_wgrad = c.runtime.overlap_wgrad;  // by which `optimal` recomputes other values
    }
    if (axes.empty()) return plainest;
    const std::string mesh = fmt::format("{}", fmt::join(axes, ","));
    const ir::Mesh over = ir::parse_mesh(mesh);
    plainest.parallel.stage_dtype = c.parallel.stage_dtype;
    if (staged) {
      plainest.parallel.pipeline = c.parallel.pipeline;
      plainest.parallel.stages = c.parallel.stages;
    }
    if (whole) plainest.parallel.sequence = c.parallel.sequence;
    if (over.size_of("tp") > 1 || ((whole || compresses()) && over.size_of("dp") > 1))
      plainest.parallel.sharding = c.parallel.sharding;
    if (compresses()) {
      plainest.parallel.compress = c.parallel.compress;
      plainest.parallel.compress_warmup = c.parallel.compress_warmup;
      plainest.parallel.server = c.parallel.server;
    }
    // Convolutions are made in the same parts, and shards' sums of 16 bits are rounded in the same order.
    plainest.parallel.overlap = sums_shards && c.parallel.overlap;
    if (low()) plainest.parallel.allreduce = c.parallel.allreduce;
    return over_mesh(plainest, mesh);
  }

  void make_tolerance() {
    plan_.tolerance = low() ? kLowPrecision : Tolerance{2e-5, 5e-4};
    const auto allow = [&](const Tolerance& at_least) {
      plan_.tolerance.loss = std::max(plan_.tolerance.loss, at_least.loss);
      plan_.tolerance.weights = std::max(plan_.tolerance.weights, at_least.weights);
    };
    if (has("rounded weights=int8")) allow({5e-4, 0.05});
    // A gradient's code that tips is wrong by up to a quarter. One rounding error of f32 in the weights comes to a
    // third of that: TRIREME_PLAN_OWN shows it.
    if (has("precision=fp8")) allow({1e-2, 0.25});
    if (has("activations=bf16|int8") || has("messages!=same")) allow({2e-4, 0.05});
    if (has("compress!=none")) allow({2e-3, 0.05});
  }

  std::string text() const {
    const train::Config& c = plan_.config;
    std::string line = fmt::format("seed {}: mesh {} · {}", plan_.seed, c.parallel.mesh, plan_.choices.text());
    if (!c.parallel.stages.empty()) line += fmt::format(" · stages {}", fmt::join(c.parallel.stages, ","));
    if (has("schedule=interleaved")) line += fmt::format(" · {}", c.parallel.pipeline);
    if (!c.memory.offload.none()) line += fmt::format(" · offload by {}", c.memory.offload_policy);
    if (c.parallel.servers > 1) line += fmt::format(" · {} servers", c.parallel.servers);
    if (c.memory.limit.count > 0) line += fmt::format(" · limit {}", c.memory.limit.count);
    if (c.prune.method != train::Prune::none)
      line += fmt::format(" · prune {} {} {}", c.prune.method, c.prune.pattern, c.prune.schedule);
    if (all_is_sent_) line += fmt::format(" · all is sent by {}", c.parallel.compress);
    for (const auto& [pattern, sharding] : c.parallel.sharding) line += fmt::format(" · {} = {}", pattern, sharding);
    return line;
  }

  RandomPlan plan_;
  train::Config plain_;
  ir::Mesh mesh_;
  bool over_dp_ = false;      // parameters are annotated over dp
  bool all_is_sent_ = false;  // of what is compressed
};

}  // namespace

RandomPlan draw_plan(std::uint32_t seed, int max_ranks) { return PlanMaker(seed, max_ranks).run(); }

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
  if (moved.by > 0)
    for (auto& [name, values] : reference.weights()) move_weights(name, values, moved);
  Trajectory result;
  result.start = reference.weights();
  reference.train(plan.steps);
  result.weights = reference.weights();
  result.losses = reference.losses();
  return result;
}

}  // namespace trireme::testing
