// Parameter servers: in step they train as all-reduce does; apart they keep to their bound.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "equivalence/training.h"
#include "trireme/core/error.h"
#include "trireme/program/group.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/schedule.h"
#include "trireme/train/server_rank.h"

namespace trireme::testing {
namespace {

// Steps of each comparison, and what is compared: a few, or as many as the environment asks for, and everything.
const char* asked() { return std::getenv("TRIREME_STEPS"); }
std::int64_t steps() { return asked() == nullptr ? 3 : std::atoll(asked()); }

train::Config shareable(const std::string& model) {
  train::Config config = small_model(model);
  config.train.batch = 12;
  return config;
}

train::Config with_servers(train::Config config, int workers, int servers, const std::string& mode = "sync") {
  config.parallel.server = mode;
  config.parallel.servers = servers;
  return over_ranks(std::move(config), workers);
}

class SyncServer : public ::testing::TestWithParam<std::string> {};

TEST_P(SyncServer, TrainsLikeAllReduce) {
  for (const int workers : {1, 2, 3})
    for (const int servers : {1, 2}) {
      if (asked() == nullptr && servers != (workers == 2 ? 1 : 2)) continue;
      SCOPED_TRACE(fmt::format("dp={} servers={}", workers, servers));
      const train::Config plain = over_ranks(shareable(GetParam()), workers);
      Trained reduced(plain);
      Trained served(with_servers(shareable(GetParam()), workers, servers));
      reduced.train(steps());
      served.train(steps());
      expect_equal_training(reduced, served, 1e-5);
      EXPECT_EQ(served.session().highest_offset(), served.compiled().arena_bytes());
      for (const auto& rank : served.session().ranks()) EXPECT_EQ(rank->highest_offset(), rank->role().arena_bytes);
    }
}

TEST_P(SyncServer, WithSeveralMicroBatchesAndLowPrecision) {
  for (const char* precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    train::Config config = shareable(GetParam());
    config.train.micro_batch = 6;
    config.train.precision = precision;
    config.train.loss_scale = 64;
    Trained reduced(over_ranks(config, 2));
    Trained served(with_servers(config, 2, 2));
    reduced.train(2);
    served.train(2);
    // Sums of several micro-batches are f32 whatever the precision.
    expect_equal_training(reduced, served, 1e-5);
  }
}

// Servers take the place of dp: every stage and every shard has its own.
TEST_P(SyncServer, WithStagesAndShards) {
  const bool images = GetParam() == "convnet";
  std::vector<std::string> meshes = {"tp=2", "pp=2,dp=2", "dp=2,tp=2", "tp=2,dp=2,pp=2"};
  if (images) meshes = {"pp=2", "pp=2,dp=2", "dp=2,h=2", "w=2,pp=2"};
  for (const std::string& mesh : meshes)
    for (const int servers : {1, 2}) {
      if (asked() == nullptr && servers != (mesh == meshes[1] || mesh == meshes[2] ? 2 : 1)) continue;
      SCOPED_TRACE(fmt::format("{} servers={}", mesh, servers));
      train::Config config = shareable(GetParam());
      config.train.micro_batch = 4;
      config.train.batch = 12;
      if (!images) config.model.context = 20;
      config.model.layers = 3;
      config.train.clip = 0.2;  // the norm is over all servers
      train::resolve_model(config, config.model.vocab);
      Trained plain(config);
      config.parallel.server = "sync";
      config.parallel.servers = servers;
      Trained served(over_mesh(config, mesh));
      plain.train(steps());
      served.train(steps());
      expect_equal_training(plain, served, 2e-5);
      const ir::Mesh workers = ir::parse_mesh(mesh);
      EXPECT_EQ(served.compiled().ranks(), workers.ranks() + servers * workers.ranks() / workers.size_of("dp"));
      for (const auto& rank : served.session().ranks()) EXPECT_EQ(rank->highest_offset(), rank->role().arena_bytes);
    }
}

// What workers do not ask for is elsewhere between two updates: the same bits, less memory.
TEST_P(SyncServer, OffloadsItsStates) {
  if (GetParam() == "convnet") return;  // too small to be worth it
  for (const char* offload : {"optimizer", "all"}) {
    SCOPED_TRACE(offload);
    train::Config config = wider_model(GetParam());
    config.train.batch = 12;
    config = with_servers(config, 2, 2);
    Trained kept(config);
    config.memory.offload = offload;
    train::check(config);
    Trained offloaded(config);
    kept.train(3);
    offloaded.train(3);
    expect_same_bits(kept, offloaded);
    for (const auto& rank : offloaded.session().ranks()) EXPECT_EQ(rank->highest_offset(), rank->role().arena_bytes);
    const auto server = [](const Trained& t) -> const train::Role& { return t.compiled().roles.back(); };
    EXPECT_GT(server(offloaded).tier_bytes[2], server(offloaded).stored_parameters());
    EXPECT_LT(server(offloaded).arena_bytes, server(kept).arena_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SyncServer, ::testing::Values("gpt2", "llama", "convnet"));

// One hidden layer over four stages, of which some have no parameters, and others one layer's two tensors.
train::Config short_of_parameters() {
  train::Config config = shareable("mlp");
  config.model.layers = 1;
  config.train.micro_batch = 6;
  config.train.clip = 0.2;  // the norm is over all servers
  return config;
}

// How many servers keep nothing.
std::int64_t idle_servers(const Trained& t) {
  const std::vector<train::Role>& roles = t.compiled().roles;
  return std::count_if(roles.begin(), roles.end(),
                       [](const train::Role& role) { return !role.takes_rows() && role.stored_parameters() == 0; });
}

// Servers of a stage without parameters are there all the same.
TEST(Server, SomeMayKeepNothing) {
  for (const std::string precision : {"f32", "bf16", "fp16"})
    for (const char* mesh : {"pp=4,dp=2", "dp=2,pp=3,tp=2"})
      for (const int servers : {1, 2}) {
        if (asked() == nullptr && (precision == "f32") == (servers == 1)) continue;
        SCOPED_TRACE(fmt::format("{} {} servers={}", precision, mesh, servers));
        train::Config config = short_of_parameters();
        config.train.precision = precision;
        config.train.loss_scale = 64;
        Trained reduced(over_mesh(config, mesh));
        config.parallel.server = "sync";
        config.parallel.servers = servers;
        Trained served(over_mesh(config, mesh));
        reduced.train(steps());
        served.train(steps());
        expect_equal_training(reduced, served, 1e-5);
        EXPECT_GE(idle_servers(served), servers);
        const ir::Mesh workers = ir::parse_mesh(mesh);
        EXPECT_EQ(served.compiled().ranks(), workers.ranks() + servers * workers.ranks() / workers.size_of("dp"));
        for (const auto& rank : served.session().ranks()) EXPECT_EQ(rank->highest_offset(), rank->role().arena_bytes);
      }
}

// And so are those beyond a stage's parameters, of which each is kept whole where it is compressed or pruned.
TEST(Server, SomeOfAStageMayKeepNothing) {
  for (const std::string setting : {"parallel.compress=int8", "parallel.compress=onebit", "parallel.compress=topk:0.2",
                                    "prune.method=magnitude", "memory.offload=optimizer"}) {
    SCOPED_TRACE(setting);
    train::Config config = short_of_parameters();
    config.model.layers = 4;
    config.train.optimizer = "sgd";
    config.train.lr = 0.05;
    config.parallel.compress_warmup = setting.ends_with("onebit") || setting.ends_with("topk:0.2") ? 1 : 0;
    config.parallel.server = "sync";
    train::apply_setting(config, setting);
    config.prune.begin = 1;
    config.prune.end = 2;
    config.prune.every = 1;
    Trained one(over_mesh(config, "pp=3,dp=2"));
    config.parallel.servers = 4;
    Trained many(over_mesh(config, "pp=3,dp=2"));
    one.train(4);
    many.train(4);
    expect_equal_training(one, many, 1e-5);
    EXPECT_TRUE(idle_servers(many) > 0 || setting == "memory.offload=optimizer");
  }
}

// The stages' sum by which gradients are clipped before they are compressed has a term of every stage.
TEST(Server, AStageMayPushNothingThatIsCompressed) {
  for (const char* compress : {"onebit", "topk:0.2"}) {
    SCOPED_TRACE(compress);
    train::Config config = short_of_parameters();
    config.train.optimizer = "sgd";
    config.train.lr = 0.05;
    config.parallel.compress = compress;
    config.parallel.compress_warmup = 1;
    config.parallel.server = "sync";
    Trained together(over_mesh(config, "dp=2"));
    Trained staged(over_mesh(config, "pp=4,dp=2"));
    together.train(4);
    staged.train(4);
    expect_equal_training(together, staged, 1e-4);
  }
}

// What one step moves: for a worker its gradients out and the weights in, however many workers there are; for a server
// that of all workers, of what it keeps.
// Of the last stage one server keeps the table alone, whose squares the first stage sums.
TEST(Server, OneMayKeepNothingThatCountsInTheNormOfCompressedGradients) {
  train::Config config = wider_model("llama");
  config.model.tie_embeddings = true;
  config.train.batch = 12;
  config.train.micro_batch = 6;
  config.train.optimizer = "sgd";
  config.train.lr = 0.05;
  config.train.clip = 0.5;
  config.parallel.compress = "topk:0.2";
  config.parallel.compress_warmup = 1;
  config.parallel.server = "sync";
  const train::Config one = over_mesh(config, "pp=3,dp=2");
  config.parallel.servers = 2;
  Trained few(one);
  Trained many(over_mesh(config, "pp=3,dp=2"));
  few.train(3);
  many.train(3);
  expect_equal_training(few, many, 1e-5);
}

TEST(Server, TrafficFollowsTheLaw) {
  const auto traffic = [](const train::Rank& rank) {
    return rank.groups()->messages(program::kExchangeMessages).counters();
  };
  std::uint64_t parameters = 0;
  for (const int workers : {1, 3})
    for (const int servers : {1, 3}) {
      SCOPED_TRACE(fmt::format("dp={} servers={}", workers, servers));
      Trained t(with_servers(shareable("gpt2"), workers, servers));
      t.train(2);
      parameters = t.compiled().parameters() * sizeof(float);
      const std::uint64_t loss = sizeof(float) * static_cast<std::uint64_t>(servers);  // each server hears of it
      const std::uint64_t results = 3 * sizeof(float);                                 // loss, norm, finite
      for (const auto& rank : t.session().ranks()) {
        if (!rank->takes_rows()) continue;
        EXPECT_EQ(traffic(*rank).sent, 2 * (parameters + loss));
        EXPECT_EQ(traffic(*rank).received, 2 * (parameters + results));
      }
      std::uint64_t received = 0;
      const std::uint64_t all = 2 * static_cast<std::uint64_t>(workers) * (parameters + loss);
      for (const auto& rank : t.session().ranks()) {
        if (rank->takes_rows()) continue;
        const comm::Counters c = traffic(*rank);
        received += c.received;
        // A server's share, as even as whole tensors can be cut.
        EXPECT_NEAR(static_cast<double>(c.received), static_cast<double>(all) / servers,
                    0.05 * static_cast<double>(all));
      }
      EXPECT_EQ(received, all);
    }
}

// Gradients are pushed in fewer bytes: those of an int8 with a scale for 256, of signs, or of the largest; small ones
// as they are.
TEST(Server, CompressedPushesAreAsSmallAsTheirCode) {
  for (const auto& [kind, bits] : {std::pair("bf16", 16.0), {"int8", 8.125}, {"onebit", 1.25}, {"topk:0.02", 0.96}}) {
    SCOPED_TRACE(kind);
    train::Config config = wider_model("llama");
    config.train.batch = 12;
    config.train.optimizer = "sgd";
    config.train.steps = 8;
    config.parallel.compress = kind;
    if (std::string(kind) == "onebit" || std::string(kind) == "topk:0.02") config.parallel.compress_warmup = 1;
    config = with_servers(config, 2, 2);
    train::check(config);
    Trained t(config);
    t.train(2);
    const auto sent = [&] {
      return t.session().ranks().front()->groups()->messages(program::kExchangeMessages).counters().sent;
    };
    const std::uint64_t before = sent();
    t.train(1);
    const double own = static_cast<double>(t.compiled().parameters()) * bits / 8;
    EXPECT_NEAR(static_cast<double>(sent() - before), own, 0.03 * own + 4096);
  }
}

// How far each server let a worker get ahead of the slowest, where the last replica begins its first step only when all
// others have begun step `ahead`, or `patience` is over: a bound may stop them before.
std::vector<std::int64_t> leads_of(const std::string& mode, std::int64_t ahead, const std::string& mesh = "dp=3",
                                   std::chrono::seconds patience = std::chrono::seconds(30),
                                   train::Config given = shareable("gpt2")) {
  given.parallel.server = mode;
  given.parallel.servers = 2;
  const train::Config config = over_mesh(std::move(given), mesh);
  Trained t(config);
  std::vector<data::Batch> batches;
  for (std::int64_t step = 0; step < 12; ++step) batches.push_back(batch_of(config, step));
  const std::size_t others = t.session().row_ranks() / 3 * 2;  // ranks of the first two of three replicas
  std::vector<std::atomic<bool>> begun(others);
  const auto all_begun = [&] {
    return std::all_of(begun.begin(), begun.end(), [](const auto& b) { return b.load(); });
  };
  t.session().run({.first = 0,
                   .count = std::ssize(batches),
                   .seed = config.train.seed,
                   .lr = [&](std::int64_t step) { return train::learning_rate(config.train, step); },
                   .batch = [&](std::size_t worker, std::int64_t step) -> const data::Batch& {
                     if (worker < others && step == ahead) begun[worker] = true;
                     const auto deadline = std::chrono::steady_clock::now() + patience;
                     while (worker >= others && step == 0 && !all_begun() &&
                            std::chrono::steady_clock::now() < deadline)
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     return batches[static_cast<std::size_t>(step)];
                   },
                   .done = [](std::size_t, std::int64_t, const train::StepResult& r) { EXPECT_TRUE(r.finite); }});
  std::vector<std::int64_t> leads;
  for (const auto& rank : t.session().ranks())
    if (const auto* server = dynamic_cast<const train::ServerRank*>(rank.get()))
      leads.push_back(server->largest_lead());
  // All workers have the servers' weights again.
  for (const auto& rank : t.session().ranks()) {
    if (!rank->takes_rows()) continue;
    for (const ir::State& state : rank->role().module.states) {
      if (!state.trained) continue;
      const auto kept = t.session().state(state.name);
      std::vector<std::byte> own(kept.size());
      rank->read_state(state.name, 0, own);
      EXPECT_TRUE(own == kept) << state.name;
    }
  }
  return leads;
}

using Leads = std::vector<std::int64_t>;

TEST(Server, StalenessIsBounded) {
  // The others come as far ahead of the slow one as they may, and no farther, however long it waits for them.
  EXPECT_EQ(leads_of("ssp:0", 0), Leads({0, 0}));
  EXPECT_EQ(leads_of("ssp:2", 2), Leads({2, 2}));
  EXPECT_EQ(leads_of("ssp:4", 4), Leads({4, 4}));
  EXPECT_EQ(leads_of("ssp:2", 3, "dp=3", std::chrono::seconds(1)), Leads({2, 2}));
  for (const std::int64_t lead : leads_of("async", 6)) EXPECT_GE(lead, 6);
}

// A replica is ahead with all its stages: its update is the same one on the servers of each.
TEST(Server, StalenessOfPipelinesIsBounded) {
  EXPECT_EQ(leads_of("ssp:2", 2, "dp=3,pp=2"), Leads({2, 2, 2, 2}));
  EXPECT_EQ(leads_of("ssp:1", 2, "dp=3,pp=2", std::chrono::seconds(1)), Leads({1, 1, 1, 1}));
  for (const std::int64_t lead : leads_of("async", 4, "dp=3,pp=2")) EXPECT_GE(lead, 4);
}

// Also where the first stage pushes nothing, and another says whose gradients come next.
TEST(Server, StalenessIsBoundedWhereSomeKeepNothing) {
  const auto leads = [](const std::string& mode, std::int64_t ahead) {
    return leads_of(mode, ahead, "dp=3,pp=4", std::chrono::seconds(30), short_of_parameters());
  };
  EXPECT_EQ(leads("ssp:2", 2), Leads(8, 2));
  for (const std::int64_t lead : leads("async", 4)) EXPECT_GE(lead, 4);
}

TEST(Server, AsyncWithOneWorkerIsTrainingWhereSomeKeepNothing) {
  for (const char* mode : {"async", "ssp:1"})
    for (const char* mesh : {"pp=3", "pp=4", "tp=2,pp=3"}) {
      SCOPED_TRACE(fmt::format("{} {}", mode, mesh));
      train::Config config = short_of_parameters();
      Trained plain(config);
      config.parallel.server = mode;
      config.parallel.servers = 2;
      Trained served(over_mesh(config, mesh));
      plain.train(4);
      served.train(4);
      expect_equal_training(plain, served, 1e-5);
    }
}

TEST(Server, AsyncWithOneWorkerIsTraining) {
  for (const char* mesh : {"dp=1", "pp=2", "tp=2,pp=2"}) {
    SCOPED_TRACE(mesh);
    train::Config config = shareable("llama");
    Trained plain(config);
    config.parallel.server = "async";
    config.parallel.servers = 2;
    Trained served(over_mesh(config, mesh));
    plain.train(4);
    served.train(4);
    expect_equal_training(plain, served, 1e-5);
  }
}

TEST(Server, CheckpointsGoAnywhere) {
  const std::filesystem::path run = std::filesystem::path(::testing::TempDir()) / "server_checkpoints";
  std::filesystem::remove_all(run);
  const train::Config plain = shareable("convnet");
  const std::vector<train::Config> ways = {plain, over_ranks(plain, 2, 3), with_servers(plain, 2, 2),
                                           with_servers(plain, 3, 1)};
  for (std::size_t i = 0; i < ways.size(); ++i)
    for (std::size_t j = 0; j < ways.size(); ++j) {
      if (asked() == nullptr && j != (i + 1) % ways.size()) continue;
      const train::Config& from = ways[i];
      const train::Config& to = ways[j];
      std::filesystem::remove_all(run);
      Trained first(from);
      first.train(2);
      train::save_checkpoint(run, first.session(), from, 2, 1);
      Trained second(to);
      train::load_checkpoint(run, 2, second.session());
      const auto before = first.state();
      const auto after = second.state();
      ASSERT_EQ(before.size(), after.size());
      for (const auto& [name, values] : before) EXPECT_TRUE(values == after.at(name)) << name;
    }
  std::filesystem::remove_all(run);
}

// Whichever rank dies, all end soon and name it.
TEST(Server, DeathEndsEveryone) {
  for (const char* mode : {"sync", "async"})
    for (const bool server_dies : {true, false}) {
      SCOPED_TRACE(fmt::format("{}, a {} dies", mode, server_dies ? "server" : "worker"));
      const train::Config config = with_servers(shareable("gpt2"), 2, 1, mode);
      Trained t(config);
      const data::Batch batch = batch_of(config, 0);
      thread_local bool works = false;  // this thread is a worker's
      const auto begin = std::chrono::steady_clock::now();
      std::string message;
      try {
        t.session().run({.first = 0,
                         .count = 6,
                         .seed = 1,
                         .lr =
                             [&](std::int64_t step) {
                               if (server_dies && !works && step == 3) fail("the power is out");
                               return 1e-3;
                             },
                         .batch = [&](std::size_t worker, std::int64_t step) -> const data::Batch& {
                           works = true;
                           if (!server_dies && worker == 1 && step == 3) fail("the power is out");
                           return batch;
                         },
                         .done = {}});
      } catch (const Error& e) {
        message = e.message();
      }
      EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
      EXPECT_NE(message.find("the power is out"), std::string::npos) << message;
      EXPECT_NE(message.find(server_dies ? "rank 2" : "rank 1"), std::string::npos) << message;
    }
}

TEST(Server, RefusesWhatDoesNotGoTogether) {
  const auto refusal = [](const train::Config& config) -> std::string {
    try {
      train::check(config);
      train::Registry registry;
      train::compile(config, registry, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::request) << e.message();
      return e.message();
    }
    return "";
  };
  train::Config config = with_servers(shareable("gpt2"), 2, 1);
  config.parallel.zero = 1;
  EXPECT_NE(refusal(config).find("parallel.zero"), std::string::npos);
  config.parallel.zero = 0;
  config.parallel.compress = "powersgd:2";
  EXPECT_NE(refusal(config).find("the nearest is parallel.compress = \"int8\""), std::string::npos);
  config.parallel.compress = "none";
  config.parallel.servers = 63;  // some rows of most parameters
  EXPECT_EQ(refusal(config), "");
  config.parallel.servers = 10000;
  const std::string many = refusal(config);
  EXPECT_NE(many.find("parallel.servers"), std::string::npos);
  const std::string nearest = "the nearest is parallel.servers = ";
  ASSERT_NE(many.find(nearest), std::string::npos) << many;
  config.parallel.servers = std::stoll(many.substr(many.find(nearest) + nearest.size()));
  EXPECT_EQ(refusal(config), "");
  // As many as one of the stages has use for.
  config.parallel.mesh = "pp=4,dp=2";
  config.parallel.servers = 300;
  const std::string staged = refusal(config);
  ASSERT_NE(staged.find(nearest), std::string::npos) << staged;
  config.parallel.servers = std::stoll(staged.substr(staged.find(nearest) + nearest.size()));
  EXPECT_EQ(refusal(config), "");
  config.parallel.servers = 1;
  config.parallel.mesh = "pp=2";
  config.parallel.pipeline = "pipedream";
  EXPECT_NE(refusal(config).find("the nearest is parallel.pipeline = \"1f1b\""), std::string::npos) << refusal(config);
  EXPECT_NE(
      refusal(with_servers(shareable("convnet"), 2, 1, "ssp:2")).find("the nearest is parallel.server = \"sync\""),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
