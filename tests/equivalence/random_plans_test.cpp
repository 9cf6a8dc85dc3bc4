// Plans drawn at random from everything that a run can ask for train like one plain rank; those that change the
// mathematics train like their reference.
//
//   TRIREME_PLANS=300   draws that many (seeds 1, 2, …)
//   TRIREME_PLAN=17     draws seed 17 alone
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "equivalence/training.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

// One plan: what it is compared with, and how closely.
struct Drawn {
  train::Config reference;
  train::Config config;
  std::int64_t steps = 3;
  double tolerance = 2e-5;
  std::string text;
};

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : seed_(seed), random_(seed) {}

  Drawn run() {
    Drawn d;
    const std::string model = one_of({"gpt2", "gpt2", "llama", "llama", "mlp", "mlp", "convnet", "resnet18"});
    train::Config plain = plain_model(model);
    if (model == "resnet18") d.steps = 1;
    const bool low = plain.train.precision != train::Precision::f32;
    if (low) d.tolerance = 1e-2;
    d.config = plain;
    const std::string mesh = draw_mesh(plain, model);
    draw_memory(d.config, model);
    draw_order(d.config);
    d.reference = plain;
    // Sums of shards are rounded to 16 bits before they are added: the reference is sharded as well.
    const ir::Mesh m = ir::parse_mesh(mesh);
    if (low && m.size_of("tp") > 1)
      d.reference = over_mesh(plain, fmt::format("dp={},tp={}", m.size_of("dp"), m.size_of("tp")));
    micro_batch_ = plain.train.micro_batch;
    draw_exchange(d, mesh);
    d.config.parallel.mesh = mesh;
    d.config.train.micro_batch = plain.train.micro_batch / ir::parse_mesh(mesh).size_of("dp");
    d.text = fmt::format(
        "seed {}: {}{} {} {} m={} dropout {} mesh {} {} zero {} sequence {} compress {} server {} remat {} offload {} "
        "({}) "
        "activations {} bucket {} overlap {} wgrad {}",
        seed_, wide_ ? "wide " : "", model, plain.train.precision, plain.train.optimizer,
        plain.train.batch / plain.train.micro_batch, plain.model.dropout, mesh, d.config.parallel.pipeline.text(),
        d.config.parallel.zero, d.config.parallel.sequence, d.config.parallel.compress, d.config.parallel.server,
        d.config.memory.remat, d.config.memory.offload, d.config.memory.offload_policy, d.config.memory.activations,
        d.config.parallel.bucket.count, d.config.parallel.overlap, *d.config.runtime.overlap_wgrad);
    return d;
  }

 private:
  std::string one_of(const std::vector<std::string>& choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random_)];
  }
  int number(const std::vector<std::string>& choices) { return std::stoi(one_of(choices)); }
  bool coin() { return one_of({"0", "1"}) == "1"; }

  train::Config plain_model(const std::string& model) {
    // Of the wider ones something is worth offloading.
    wide_ = model != "resnet18" && one_of({"0", "0", "1"}) == "1";
    train::Config plain = wide_ ? wider_model(model) : small_model(model);
    plain.train.batch = 12;
    if (!reads_images(plain) && !wide_) plain.model.context = 20;  // which tp divides
    if (model != "resnet18") plain.model.layers = model == "convnet" || wide_ ? 3 : number({"3", "4", "6"});
    plain.model.dropout = coin() ? 0.2 : 0;
    plain.train.precision = one_of({"f32", "f32", "bf16", "fp16"});
    plain.train.loss_scale = 1;  // no step may be skipped here
    // AdamW would turn the rounding of 16 bits, where a gradient is nearly zero, into full steps.
    plain.train.optimizer = plain.train.precision == train::Precision::f32 ? one_of({"adamw", "sgd"}) : "sgd";
    if (model == "resnet18") {
      // Of deep stacks of batch norms, one step of SGD over many rows is what can be compared closely.
      plain.train.batch = 96;
      plain.train.precision = "f32";
      plain.train.optimizer = "sgd";
    }
    plain.train.clip = coin() ? 0.5 : 0;
    train::resolve_model(plain, plain.model.vocab);
    return plain;
  }

  std::string draw_mesh(train::Config& plain, const std::string& model) {
    std::vector<std::pair<std::string, int>> axes = {{"pp", number({"1", "1", "2", "2", "3"})},
                                                     {"dp", number({"1", "1", "2", "3"})}};
    const bool shards = model == "mlp" || !reads_images(plain);  // there is a preset
    axes.emplace_back("tp", shards ? number({"1", "1", "2"}) : 1);
    std::shuffle(axes.begin(), axes.end(), random_);
    const int dp = std::find_if(axes.begin(), axes.end(), [](const auto& axis) { return axis.first == "dp"; })->second;
    // Each replica has as many rows of every micro-batch.
    std::vector<std::string> counts;
    for (const int micro_batches : {1, 2, 3, 4, 6})
      if ((model != "resnet18" || micro_batches <= 3) && plain.train.batch / micro_batches % dp == 0)
        counts.push_back(std::to_string(micro_batches));
    plain.train.micro_batch = plain.train.batch / number(counts);
    std::erase_if(axes, [](const auto& axis) { return axis.second == 1; });
    std::string mesh;
    for (const auto& [name, size] : axes) mesh += fmt::format("{}{}={}", mesh.empty() ? "" : ",", name, size);
    return mesh.empty() ? "dp=1" : mesh;
  }

  void draw_memory(train::Config& config, const std::string& model) {
    config.memory.remat = one_of({"none", "none", "every:2", "sqrt", "selective", "optimal", "full"});
    if (model == "mlp") config.memory.remat = one_of({"none", "every:2"});  // its layers make nothing else to recompute
    config.memory.offload =
        !wide_ ? "none" : one_of({"none", "activations", "optimizer", "weights", "activations,optimizer", "all"});
    config.memory.offload_policy = one_of({"all", "dynamic"});
  }

  void draw_order(train::Config& config) {
    config.parallel.pipeline = one_of({"sequential", "gpipe", "1f1b", "zero-bubble", "interleaved:2"});
    config.runtime.overlap_wgrad = coin();
    config.parallel.overlap = coin();
    config.parallel.bucket.count = coin() ? 2000 : std::size_t{25} << 20;
  }

  // How gradients and states are shared, which some plans compare with another reference.
  void draw_exchange(Drawn& d, const std::string& mesh) {
    const ir::Mesh m = ir::parse_mesh(mesh);
    const int replicas = m.size_of("dp");
    const bool sharded = m.size_of("tp") > 1;
    const bool unsharded = m.ranks() == replicas;
    if (replicas > 1) d.config.parallel.zero = number({"0", "1", "2", "3"});
    if (sharded && !reads_images(d.config)) d.config.parallel.sequence = coin();
    const std::string technique =
        one_of({"none", "none", "none", "none", "compress", "server", "server", "activations", "messages"});
    if (technique == "activations" && sharded && !d.config.parallel.sequence) {
      d.config.memory.activations = "sharded";  // as they are
    } else if (technique == "activations" && d.steps > 1) {
      // Blocks of int8 follow the shards: the reference has them too.
      const bool low = d.config.train.precision != train::Precision::f32;
      d.config.memory.activations = low ? "int8" : one_of({"bf16", "int8"});
      d.reference.memory.activations = d.config.memory.activations;
      d.reference.parallel.sequence = d.config.parallel.sequence;
      d.reference.train.micro_batch = micro_batch_;
      d.reference = over_mesh(d.reference, fmt::format("dp={},tp={}", replicas, m.size_of("tp")));
      d.config.memory.remat = "none";  // which decides what is saved, and so what is rounded
      d.tolerance = std::max(d.tolerance, 2e-4);
    }
    if (technique == "messages" && m.size_of("pp") > 1) {
      d.config.parallel.stage_dtype = one_of({"bf16", "int8"});
      d.reference = d.config;  // with the same cuts, and nothing else
      d.reference.memory = {};
      d.reference.parallel.zero = 0;
      d.reference.parallel.overlap = false;
      d.reference.runtime.overlap_wgrad = false;
      d.reference.train.micro_batch = micro_batch_;
      d.reference = over_mesh(d.reference, mesh);
      d.tolerance = std::max(d.tolerance, 2e-4);
    }
    if (technique == "compress" && replicas > 1) {
      // The reference compresses the gradients of as many replicas. Kinds that look at an entire matrix see another one
      // where it is sharded.
      std::vector<std::string> kinds = {"bf16"};
      if (!sharded) kinds.insert(kinds.end(), {"int8", "powersgd:2"});
      if (!sharded && d.config.train.optimizer == train::Optimizer::sgd) kinds.push_back("topk:0.2");
      d.config.parallel.compress = one_of(kinds);
      d.config.memory.offload = one_of({"none", "activations"});  // an update is of all that it compresses
      d.config.parallel.zero = 0;
      if (d.config.parallel.compress.kind() == train::Compress::topk) d.config.parallel.compress_warmup = 1;
      d.reference.parallel.compress = d.config.parallel.compress;
      d.reference.parallel.compress_warmup = d.config.parallel.compress_warmup;
      d.reference.train.micro_batch = micro_batch_;
      d.reference = over_mesh(d.reference, fmt::format("dp={},tp={}", replicas, m.size_of("tp")));
      d.tolerance = std::max(d.tolerance, 2e-3);
    }
    if (technique == "server" && replicas > 1 && (unsharded || one_of({"0", "0", "1"}) == "1")) {
      d.config.parallel.server = "sync";
      d.config.parallel.servers = number({"1", "2"});
      d.config.parallel.zero = 0;
      // Servers have the states.
      if (d.config.memory.offload != d.reference.memory.offload)
        d.config.memory.offload = one_of({"none", "activations"});
    }
    // A shard that is updated in place is not offloaded.
    if (d.config.parallel.zero == 1 || d.config.parallel.zero == 2)
      d.config.memory.offload = one_of({"none", "activations", "optimizer", "activations,optimizer"});
  }

  bool wide_ = false;
  std::int64_t micro_batch_ = 0;  // rows, of all replicas
  std::uint32_t seed_;
  std::mt19937 random_;
};

void expect_like_reference(const Drawn& d, Trained& planned) {
  Trained reference(d.reference, {.threads = 2});
  reference.train(d.steps);
  planned.train(d.steps);
  expect_equal_training(reference, planned, d.tolerance);
  EXPECT_EQ(planned.session().measured_peak(), planned.compiled().arena_bytes());
}

std::unique_ptr<Trained> trained(const train::Config& config) {
  return std::make_unique<Trained>(config, Setup{.threads = 2});
}

TEST(RandomPlans, TrainLikeOnePlainRank) {
  const char* only = std::getenv("TRIREME_PLAN");
  const char* asked = std::getenv("TRIREME_PLANS");
  const std::uint32_t first = only != nullptr ? static_cast<std::uint32_t>(std::atoi(only)) : 1;
  const std::uint32_t count = only != nullptr    ? 1
                              : asked != nullptr ? static_cast<std::uint32_t>(std::atoi(asked))
                                                 : 60;
  std::map<std::string, int> used;
  std::vector<std::string> refused;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    const Drawn d = Draw(seed).run();
    SCOPED_TRACE(d.text);
    std::unique_ptr<Trained> planned;
    try {
      train::check(d.config);
      planned = trained(d.config);
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), Error::Kind::request) << e.what();
      refused.push_back(fmt::format("{}\n    {}", d.text, e.what()));
      continue;
    }
    expect_like_reference(d, *planned);
    for (const ir::Mesh::Axis& axis : planned->compiled().mesh.axes) used[axis.name] += axis.size > 1;
    used["recomputed"] += planned->compiled().plan.recompute.has_value();
    used["offloaded"] += planned->compiled().tier_bytes(2) > 0;
    used["compressed"] += planned->compiled().plan.compress.has_value();
    used["servers"] += planned->compiled().plan.server.has_value();
    if (HasFatalFailure()) return;
  }
  for (const auto& [what, times] : used) fmt::print("{:>4} plans with {}\n", times, what);
  for (const std::string& why : refused) fmt::print("refused: {}\n", why);
  if (only != nullptr) return;
  EXPECT_LT(refused.size() * 10, count);
  if (count < 200) return;  // too few to have some of everything
  for (const char* what : {"pp", "dp", "tp", "recomputed", "offloaded", "compressed", "servers"})
    EXPECT_GE(used[what] * 50, static_cast<int>(count)) << what;
}

}  // namespace
}  // namespace trireme::testing
