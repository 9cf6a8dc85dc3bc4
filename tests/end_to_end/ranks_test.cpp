// Runs on several ranks, as threads and as processes: what they leave behind, and what becomes of them when one dies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Ranks : public Program {
 protected:
  static std::vector<std::string> arguments(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train",
                                    "tiny.toml",
                                    "--output.dir=" + run,
                                    "--train.schedule=constant",
                                    "--train.batch=12",
                                    "--model.dropout=0.1",
                                    "--output.checkpoint_every=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  Finished processes(int count, const std::vector<std::string>& arguments) const {
    return Running(folder(), arguments, count).wait();
  }

  void expect_same_losses(const std::string& a, const std::string& b) const {
    const auto left = metrics(a);
    const auto right = metrics(b);
    ASSERT_EQ(left.size(), right.size());
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double loss = left[i]["loss"];
      EXPECT_NEAR(loss, right[i]["loss"], 1e-5 * std::abs(loss)) << "step " << i + 1;
    }
  }

  std::int64_t newest() const {
    std::int64_t step = 0;
    for (const std::string& name : names_in("run/checkpoints"))
      if (!name.ends_with(".partial")) step = std::max<std::int64_t>(step, std::stoll(name.substr(5)));
    return step;
  }

  // All shards of a checkpoint.
  std::string shards(const std::string& run, std::int64_t step) const {
    std::string all;
    const std::string path = run + "/checkpoints/" + step_name(step);
    for (const std::string& name : names_in(path))
      if (name.ends_with(".safetensors")) all.append(name).append(read(fmt::format("{}/{}", path, name)));
    return all;
  }
};

bool has_mpirun() {
#ifdef __SANITIZE_THREAD__
  return false;  // the sanitizer does not see how MPI's own threads pass messages on, and takes that for races
#else
  return std::system("command -v mpirun > /dev/null") == 0;
#endif
}

TEST_F(Ranks, ARunGoesOnWithOtherRanks) {
  done(arguments("one", {"--train.steps=9", "--output.checkpoint_every=0"}));
  done(arguments("run", {"--train.steps=3", "--parallel.mesh=dp=4", "--parallel.zero=3"}));
  done(arguments("run", {"--resume", "--train.steps=6", "--parallel.mesh=dp=3", "--parallel.zero=1"}));
  done(arguments("run", {"--resume", "--train.steps=9"}));
  expect_same_losses("one", "run");
}

TEST_F(Ranks, ResumedOnTheSameRanksNotABitDiffers) {
  const std::vector<std::string> ranks = {"--parallel.mesh=dp=3", "--parallel.zero=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), ranks.begin(), ranks.end());
    return more;
  };
  done(arguments("whole", with({"--train.steps=6"})));
  done(arguments("run", with({"--train.steps=3"})));
  done(arguments("run", with({"--resume", "--train.steps=6"})));
  EXPECT_EQ(shards("run", 6), shards("whole", 6));
}

// Two ways to train, or, where the environment asks for many steps, every family, stage and algorithm.
TEST_F(Ranks, ProcessesTrainAsThreadsDo) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const char* asked = std::getenv("TRIREME_STEPS");
  const std::int64_t steps = asked == nullptr ? kSteps : std::atoll(asked);
  const std::vector<std::string> images = {"--model.family=convnet",  "--model.image=8", "--model.width=4",
                                           "--data.images=synthetic", "--data.text=[]",  "--model.dropout=0"};
  std::vector<std::vector<std::string>> families = {{}};
  if (asked != nullptr) families = {{}, {"--model.family=llama"}, images};
  const std::vector<int> counts = asked == nullptr ? std::vector{3} : std::vector{2, 3, 4};
  std::vector<std::pair<std::string, std::string>> ways = {{"0", "ring"}, {"3", "recursive"}};
  if (asked != nullptr) ways.insert(ways.end(), {{"1", "tree"}, {"2", "parallel"}, {"0", "sequential"}});
  for (const auto& family : families)
    for (const int count : counts)
      for (const auto& [zero, algorithm] : ways) {
        SCOPED_TRACE(fmt::format("{} {} ranks, ZeRO-{}, {}", fmt::join(family, " "), count, zero, algorithm));
        std::vector<std::string> how = {"--overwrite", "--output.checkpoint_every=0", "--parallel.zero=" + zero,
                                        "--parallel.allreduce=" + algorithm, "--train.steps=" + std::to_string(steps)};
        how.insert(how.end(), family.begin(), family.end());
        const Finished f = processes(count, arguments("processes", how));
        ASSERT_EQ(f.code, 0) << f.out << f.err;
        EXPECT_NE(f.out.find(std::to_string(count) + " ranks (mpi)"), std::string::npos) << f.out;
        how.push_back("--parallel.mesh=dp=" + std::to_string(count));
        done(arguments("threads", how));
        EXPECT_EQ(shards("processes", steps), shards("threads", steps));
      }
}

TEST_F(Ranks, StagesAndShardsTrainAsThreadsAndAsProcesses) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  done(arguments("one", {"--train.micro_batch=4"}));
  for (const char* mesh : {"pp=2,dp=2", "tp=2,pp=2"}) {
    SCOPED_TRACE(mesh);
    const std::vector<std::string> how = {"--overwrite", fmt::format("--parallel.mesh={}", mesh),
                                          fmt::format("--train.micro_batch={}", mesh[0] == 'p' ? 2 : 4),
                                          "--parallel.pipeline=zero-bubble"};
    // Every send waits for its receive: over an emulated link, and in processes that are asked for it.
    std::vector<std::string> waiting = how;
    waiting.emplace_back("--runtime.link=1000GB/s,1us");
    done(arguments("threads", waiting));
    expect_same_losses("one", "threads");
    ::setenv("TRIREME_TEST_WAITING_SENDS", "1", 1);
    const Finished f = processes(4, arguments("processes", how));
    ::unsetenv("TRIREME_TEST_WAITING_SENDS");
    ASSERT_EQ(f.code, 0) << f.out << f.err;
    EXPECT_EQ(f.out.find("✗"), std::string::npos) << f.out;
    EXPECT_EQ(shards("processes", kSteps), shards("threads", kSteps));
  }
}

TEST_F(Ranks, ServersTrainAsThreadsAndAsProcesses) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  done(arguments("reduced", {"--parallel.mesh=dp=2"}));
  done(arguments("threads", {"--parallel.mesh=dp=2", "--parallel.server=sync", "--parallel.servers=2"}));
  expect_same_losses("reduced", "threads");
  const Finished f = processes(4, arguments("processes", {"--parallel.server=sync", "--parallel.servers=2"}));
  ASSERT_EQ(f.code, 0) << f.out << f.err;
  // The largest of all ranks, servers included.
  EXPECT_EQ(f.out.find("✗"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("2 servers (sync)"), std::string::npos) << f.out;
  EXPECT_EQ(shards("processes", kSteps), shards("threads", kSteps));
  const Finished apart = processes(3, arguments("apart", {"--parallel.server=ssp:1", "--train.eval_every=3"}));
  ASSERT_EQ(apart.code, 0) << apart.out << apart.err;
  EXPECT_EQ(std::ssize(metrics("apart")), kSteps);
}

// A step that prunes has a program of its own, and a server takes part in it by the one that it has for all.
TEST_F(Ranks, ServersPruneAsThreadsAndAsProcesses) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::vector<std::string> how = {"--parallel.mesh=dp=2", "--parallel.server=sync", "--prune.method=magnitude",
                                        "--prune.begin=2",      "--prune.end=4",          "--prune.every=1"};
  done(arguments("threads", how));
  const Finished f = processes(3, arguments("processes", how));
  ASSERT_EQ(f.code, 0) << f.out << f.err;
  EXPECT_EQ(shards("processes", kSteps), shards("threads", kSteps));
}

TEST_F(Ranks, ARunGoesOnWithAndWithoutServers) {
  done(arguments("one", {"--train.steps=9", "--output.checkpoint_every=0"}));
  done(arguments("run", {"--train.steps=3", "--parallel.mesh=dp=2", "--parallel.server=sync"}));
  done(arguments("run", {"--resume", "--train.steps=6", "--parallel.mesh=dp=3", "--parallel.zero=1"}));
  done(arguments("run", {"--resume", "--train.steps=9", "--parallel.mesh=dp=2", "--parallel.server=sync",
                         "--parallel.servers=2"}));
  expect_same_losses("one", "run");
}

// Each process sees its own stage alone; they say the same, where it began.
TEST_F(Ranks, ProcessesNameTheTensorThatThreadsDo) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const auto culprit = [&](const std::string& run, int processes) {
    const std::vector<std::string> all =
        arguments(run, {"--parallel.mesh=pp=2", "--model.layers=2", "--train.micro_batch=3", "--train.lr=1e30",
                        "--train.warmup=0", "--train.clip=0", "--train.steps=9", "--model.dropout=0"});
    const Finished f = processes == 0 ? this->run(all) : this->processes(processes, all);
    EXPECT_EQ(f.code, 1) << f.err;
    expect_part(f.err, "the first tensor to go bad is ");
    const std::size_t at = f.err.find("error: ");
    return at == std::string::npos ? f.err : f.err.substr(at, f.err.find("; the update was withheld") - at);
  };
  const std::string threads = culprit("threads", 0);
  // No rank is named in front, where the one would be that reports it; whose tensor it was is said of the tensor.
  EXPECT_EQ(threads.find("error: step "), 0U) << threads;
  expect_part(threads, ", micro-batch 0, rank 0)");
  EXPECT_EQ(culprit("processes", 2), threads);
}

TEST_F(Ranks, RequestsThatCannotBe) {
  EXPECT_NE(refused(arguments("run", {"--parallel.mesh=dp=5"})).find("multiple of the 5 replicas"), std::string::npos);
  EXPECT_NE(refused(arguments("run", {"--runtime.transport=mpi"})).find("mpirun"), std::string::npos);
  if (!has_mpirun()) return;
  const Finished f = processes(2, arguments("run", {"--parallel.mesh=dp=4"}));
  EXPECT_EQ(f.code, 2) << f.err;
  EXPECT_NE(f.err.find("parallel.mesh = \"dp=4\" has 4 ranks, and 2 were launched; launch 4, or set"),
            std::string::npos)
      << f.err;
  EXPECT_FALSE(exists("run"));
}

// Every process finds the same fault; one of them says so.
TEST_F(Ranks, OneErrorForAllProcesses) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const auto errors = [](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("error: ", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  // Before the ranks know of each other, and after.
  for (const char* wrong : {"--train.lrr=1", "--parallel.mesh=dp=4", "--model.context=1000000"}) {
    const Finished f = processes(3, arguments("run", {wrong}));
    EXPECT_EQ(f.code, 2) << f.err;
    EXPECT_EQ(errors(f.err), 1U) << f.err;
  }
  // Not even understood.
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{{"train", "--foo=1"},
                                                                                     {"train", "--replay", "-1"},
                                                                                     {"generate", "--prompt", "x"},
                                                                                     {"trian"},
                                                                                     {"doctor", "--train.lr=1"}}) {
    const Finished f = processes(2, wrong);
    EXPECT_EQ(f.code, 2) << f.err;
    EXPECT_EQ(errors(f.err), 1U) << wrong.front() << "\n" << f.err;
  }
  // A folder that only the first process looks at.
  done(arguments("run", {}));
  const Finished f = processes(2, arguments("run", {}));
  EXPECT_EQ(f.code, 2) << f.err;
  EXPECT_EQ(errors(f.err), 1U) << f.err;
  EXPECT_NE(f.err.find("already holds a run"), std::string::npos) << f.err;
}

// The process of a rank: known by what the launcher has put into its environment.
int process_of_rank(int rank, const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (fs::read_symlink(entry.path() / "exe", ignored) != fs::path(program_path())) continue;
    if (fs::read_symlink(entry.path() / "cwd", ignored) != fs::canonical(folder)) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    const std::string wanted = std::string(1, '\0') + "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + '\0';
    if (all.find(wanted) != std::string::npos) return std::stoi(name);
  }
  return -1;
}

// One of three processes, which train as `how` says, is killed again and again.
// What does not depend on the process is said once.
TEST_F(Ranks, ProcessesThatOnlyPlanSpeakOnce) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::vector<std::string> plan = {"memory", "tiny.toml", "--brief", "--json", "--parallel.mesh=dp=2"};
  const Finished f = processes(2, plan);
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_TRUE(nlohmann::json::accept(f.out)) << f.out;
  EXPECT_EQ(processes(2, {"memory", "tiny.toml", "--parallel.mesh=xx=2"}).code, 2);
}

class KilledRanks : public Ranks, public ::testing::WithParamInterface<const char*> {};

TEST_P(KilledRanks, EndAllAndTheRunGoesOn) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::string how = GetParam();
  const char* asked = std::getenv("TRIREME_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : 3;
  std::mt19937 random(1);
  const std::vector<std::string> forever =
      arguments("run", {"--resume", "--train.steps=1000000", how, "--parallel.timeout=5s"});
  double longest = 0;
  for (int k = 0; k < kills; ++k) {
    Running running(folder(), forever, 3);
    const int rank = k % 3;  // every stage in its turn
    int victim = -1;
    // A process that dies before the launcher knows it leaves Open MPI's launcher waiting for ever on a busy machine.
    ASSERT_TRUE(running.wait_until([&] { return running.out().find("trireme ") != std::string::npos; }));
    // The first kill comes while a run trains that has something to lose.
    ASSERT_TRUE(k > 0 || running.wait_until([&] { return exists("run/checkpoints") && newest() > 0; }));
    victim = process_of_rank(rank, folder());
    ASSERT_GT(victim, 0);
    // From right after the ranks have met to several checkpoints later.
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(0, 1500)(random)));
    const auto begin = std::chrono::steady_clock::now();
    ::kill(victim, SIGKILL);
    const Finished f = running.wait();
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    EXPECT_NE(f.code, 0) << f.out << f.err;
    EXPECT_EQ(f.err.find("skipping"), std::string::npos) << f.err;
  }
  EXPECT_LT(longest, 10);
  const std::int64_t end = newest() + 2;
  const std::string steps = "--train.steps=" + std::to_string(end);
  const Finished last = processes(3, arguments("run", {"--resume", steps, how}));
  ASSERT_EQ(last.code, 0) << last.out << last.err;
  const Finished whole = processes(3, arguments("whole", {steps, how, "--output.checkpoint_every=0"}));
  ASSERT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_EQ(shards("run", end), shards("whole", end));
  std::printf("%d kills over %lld steps, each over within %.1f s\n", kills, static_cast<long long>(end), longest);
}

// Of a server's three ranks the last is the server.
INSTANTIATE_TEST_SUITE_P(How, KilledRanks,
                         ::testing::Values("--parallel.zero=2", "--parallel.server=sync", "--parallel.mesh=pp=3"));

// Annotations are of several lines as text, and the same on both.
TEST_F(Ranks, ProcessesWithAnnotationsTrain) {
  const Finished f = processes(2, arguments("run", {"--parallel.mesh=tp=2", "--parallel.sharding.*.up.weight=out:tp",
                                                    "--parallel.sharding.*.qkv.weight=out:tp"}));
  EXPECT_EQ(f.code, 0) << f.err;
}

// Processes whose machines differ by threads, each of which takes a workspace.
TEST_F(Ranks, ProcessesThatWouldPlanOtherwiseFollowTheFirst) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::vector<std::string> how = {"--parallel.mesh=pp=2",   "--parallel.pipeline=zero-bubble:auto",
                                        "--model.layers=3",       "--model.width=32",
                                        "--train.micro_batch=2",  "--output.staging=64KiB",
                                        "--runtime.transport=mpi"};
  // What one thread needs with nothing recomputed; more threads must do something to stay within it.
  std::vector<std::string> looks = {"memory", "tiny.toml", "--brief", "--json", "--train.batch=12"};
  looks.insert(looks.end(), how.begin(), how.end());
  std::int64_t peak = 0;
  const nlohmann::json planned = nlohmann::json::parse(done(looks).out);
  for (const nlohmann::json& rank : planned.at("ranks"))
    peak = std::max(peak, rank.at("predicted_peak_bytes").get<std::int64_t>());
  const auto train = [&](const std::string& run, const char* threads) {
    std::vector<std::string> more = how;
    more.insert(more.end(), {fmt::format("--memory.limit={}B", peak), "--memory.remat=optimal", "--model.dropout=0",
                             fmt::format("--runtime.threads={}", threads)});
    return arguments(run, more);
  };
  for (const bool turned : {false, true}) {
    const std::string run = turned ? "turned" : "run";
    std::vector<std::string> both = train(run, turned ? "4" : "1");
    both.insert(both.end(), {":", "-n", "1", program_path()});
    const std::vector<std::string> second = train(run, turned ? "1" : "4");
    both.insert(both.end(), second.begin(), second.end());
    const Finished f = processes(1, both);
    ASSERT_EQ(f.code, 0) << f.out << f.err;
    EXPECT_EQ(metrics(run).size(), static_cast<std::size_t>(kSteps));
  }
  expect_same_losses("run", "turned");
}

// What the first process cannot plan is said once, and nobody is left waiting.
TEST_F(Ranks, APlanThatIsRefusedEndsAllProcesses) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const auto errors = [](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("error: ", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  for (const std::vector<std::string>& impossible :
       {std::vector<std::string>{"--memory.offload_tier=host", "--memory.offload=optimizer"},
        {"--memory.limit=1KiB", "--memory.remat=optimal"},
        {"--model.layer=2"},
        {"--parallel.mesh=tp=2", "--memory.activations=sharded", "--train.precision=tf32"}}) {
    const auto begin = std::chrono::steady_clock::now();
    const Finished f = processes(2, arguments("run", impossible));
    EXPECT_EQ(f.code, 2) << f.err;
    EXPECT_EQ(errors(f.err), 1U) << f.err;
    EXPECT_FALSE(exists("run"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  }
}

// The calibration of one process counts: the others need none, or may have another.
TEST_F(Ranks, OneProcessSearchesForAll) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::string cluster =
      "name = \"two\"\ntransport = \"threads\"\n[device]\nname = \"CPU\"\nkind = \"cpu\"\nmemory = \"8GiB\"\n"
      "memory_bandwidth = \"20GB/s\"\nprice = 1\nflops = { f32 = 80e9 }\n[node]\ndevices = 4\ncores = 2\n"
      "[inside]\nbandwidth = \"5GB/s\"\nlatency = \"20us\"\n";
  fs::create_directories(folder() / "first/trireme");
  write("first/trireme/cluster.toml", cluster);
  const std::vector<std::string> command = arguments("run", {"--parallel.plan=auto"});
  setenv("XDG_CACHE_HOME", (folder() / "first").c_str(), 1);
  std::vector<std::string> both = command;
  both.insert(both.end(), {":", "-n", "1", "env", "XDG_CACHE_HOME=" + (folder() / "second").string(), program_path()});
  both.insert(both.end(), command.begin(), command.end());
  const Finished f = processes(1, both);
  unsetenv("XDG_CACHE_HOME");
  ASSERT_EQ(f.code, 0) << f.out << f.err;
  expect_part(f.out, "planned ");
  expect_part(f.out, "2 ranks (mpi)");
}

// A plan from a machine with ranks that are threads is followed by processes.
TEST_F(Ranks, APlanForThreadsIsFollowedByProcesses) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  done({"memory", "tiny.toml", "--brief", "--parallel.mesh=dp=2", "--parallel.zero=1", "--train.batch=12",
        "--model.dropout=0.1", "--memory.remat=full", "--plan-out=plan.toml"});
  done(arguments("threads", {"--plan=plan.toml"}));
  const Finished f = processes(2, arguments("processes", {"--plan=plan.toml"}));
  ASSERT_EQ(f.code, 0) << f.out << f.err;
  expect_part(f.err, "plan.toml was made for ranks over threads, and these are over mpi");
  expect_part(read("processes/plan.toml"), "\ntransport = \"mpi\"");
  EXPECT_EQ(shards("processes", kSteps), shards("threads", kSteps));
}

// Two processes that would wait for each other in different places.
TEST_F(Ranks, ProcessesStartedWithDifferentSettingsAreRefused) {
  const auto says = [&](const std::vector<std::string>& one, const std::vector<std::string>& other) {
    const auto command = [&](std::vector<std::string> more) {
      more.insert(more.begin(), "--parallel.mesh=dp=2");
      return arguments("run", more);
    };
    std::vector<std::string> both = command(one);
    both.insert(both.end(), {":", "-n", "1", program_path()});
    const std::vector<std::string> second = command(other);
    both.insert(both.end(), second.begin(), second.end());
    const Finished f = processes(1, both);
    EXPECT_EQ(f.code, 2) << f.err;
    EXPECT_FALSE(exists("run"));
    return f.err;
  };
  const std::string settings = "the processes of this run were started with different settings: ";
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(says({"--parallel.bucket=1KiB"}, {"--parallel.bucket=64KiB"}),
         settings + "parallel.bucket is \"1KiB\" on rank 0 and \"64KiB\" on rank 1");
  expect(says({"--parallel.sharding.*.up.weight=out:dp", "--parallel.sharding.a=in:dp"},
              {"--parallel.sharding.*.up.weight=in:dp", "--parallel.sharding.a=in:dp"}),
         settings +
             "parallel.sharding is {\"*.up.weight\" = \"out:dp\", \"a\" = \"in:dp\"} on rank 0 and {\"*.up.weight\" = "
             "\"in:dp\", \"a\" = \"in:dp\"} on rank 1");
  expect(says({}, {"--dry-run"}), settings + "--dry-run is not given on rank 0 and given on rank 1");
  expect(says({}, {"--resume"}), settings + "--resume is not given on rank 0 and given on rank 1");
  expect(says({"--disable-pass=fuse"}, {}), settings + "--disable-pass is fuse on rank 0 and not given on rank 1");
  // Plans of as many decisions: which they are counts.
  done({"memory", "tiny.toml", "--brief", "--parallel.mesh=dp=2", "--train.batch=4", "--memory.remat=full",
        "--plan-out=plan.toml"});
  const std::string plan = read("plan.toml");
  const std::size_t first = plan.find('"', plan.find("recompute = ["));
  const std::size_t second = plan.find("\n", first) + 1;
  const std::size_t third = plan.find("\n", second) + 1;
  const std::size_t begin = plan.rfind('\n', first) + 1;
  const std::string rest = plan.substr(plan.find("]\n", third));
  write("one.toml", plan.substr(0, second - 2) + "\n" + rest);
  write("other.toml", plan.substr(0, begin) + plan.substr(second, third - 2 - second) + "\n" + rest);
  expect(says({"--plan=one.toml"}, {"--plan=other.toml"}), settings + "the plan's decisions.recompute is [");
  expect(says({"--plan=plan.toml"}, {}), settings + "--plan is given on rank 0 and not given on rank 1");
}

TEST_F(Ranks, ReplayIsForRanksThatAreThreads) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const Finished f = processes(2, arguments("run", {"--parallel.mesh=dp=2", "--replay=2"}));
  EXPECT_EQ(f.code, 2) << f.err;
  EXPECT_NE(f.err.find("error: --replay compares with one rank in this process"), std::string::npos) << f.err;
  EXPECT_FALSE(exists("run"));
  EXPECT_NE(refused(arguments("run", {"--parallel.mesh=dp=1", "--replay=2"})).find("--replay 2 compares several ranks"),
            std::string::npos);
  EXPECT_NE(done(arguments("run", {"--parallel.mesh=dp=2", "--replay=2"})).out.find("first 2 steps replayed"),
            std::string::npos);
}

// Files of one name may be others on another machine.
TEST_F(Ranks, ProcessesThatReadDifferentDataAreRefused) {
  fs::create_directory(folder() / "other");
  write("text.txt", std::string(4000, 'x'));
  write("other/text.txt", std::string(9000, 'x'));
  std::vector<std::string> command =
      arguments((folder() / "run").string(), {"--parallel.mesh=dp=2", "--data.text=text.txt"});
  command[1] = (folder() / "tiny.toml").string();
  std::vector<std::string> both = command;
  both.insert(both.end(), {":", "-wdir", (folder() / "other").string(), "-n", "1", program_path()});
  both.insert(both.end(), command.begin(), command.end());
  const Finished f = processes(1, both);
  EXPECT_EQ(f.code, 2) << f.err;
  EXPECT_NE(f.err.find("the processes of this run read different data: the number of samples is"), std::string::npos)
      << f.err;
  write("other/text.txt", std::string(4000, 'y'));
  const Finished same_size = processes(1, both);
  EXPECT_EQ(same_size.code, 2) << same_size.err;
  EXPECT_NE(same_size.err.find("read different data: the digest of some samples is"), std::string::npos)
      << same_size.err;
  EXPECT_FALSE(exists("run"));
}

}  // namespace
}  // namespace trireme::testing
