#include "trireme/passes/pass.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"

namespace trireme::passes {
namespace {

class Edit : public Pass {
 public:
  Edit(std::string name, std::function<void(ir::Module&)> edit) : name_(std::move(name)), edit_(std::move(edit)) {}
  std::string name() const override { return name_; }
  void run(ir::Module& module) const override { edit_(module); }
  bool optional() const override { return name_ != "needed"; }

 private:
  std::string name_;
  std::function<void(ir::Module&)> edit_;
};

class PipelineTest : public ::testing::Test {
 protected:
  PipelineTest() {
    module = ir::parse(
        "module {\n  graph micro {\n    input %x : f32[2]\n    %y = relu(%x) : f32[2]\n    output y = %y\n  }\n}\n",
        registry);
    folder = std::filesystem::temp_directory_path() / ("trireme_passes_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder);
  }
  ~PipelineTest() override { std::filesystem::remove_all(folder); }

  static void rename_output(ir::Module& m, const std::string& name) { m.graph("micro").outputs[0].name = name; }

  static std::string message_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.message();
    }
    return "fine";
  }

  static std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  ir::Registry registry = testing::probe_registry();
  ir::Module module;
  std::filesystem::path folder;
};

TEST_F(PipelineTest, RunsInOrderAndDumpsNumberedFiles) {
  Pipeline p;
  p.add<Edit>("one", [](ir::Module& m) { rename_output(m, "one"); });
  p.add<Edit>("two", [](ir::Module& m) { rename_output(m, m.graph("micro").outputs[0].name + ".two"); });
  std::vector<std::string> ran;
  p.run(module, {.dump = folder / "deep", .on_pass = [&](const std::string& name, double seconds) {
                   EXPECT_GE(seconds, 0);
                   ran.push_back(name);
                 }});
  EXPECT_EQ(ran, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(p.names(), ran);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "deep"))
    files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files, (std::vector<std::string>{"00-model.txt", "01-one.txt", "02-two.txt"}));
  EXPECT_NE(text_of(folder / "deep" / "00-model.txt").find("output y = %y"), std::string::npos);
  EXPECT_EQ(text_of(folder / "deep" / "02-two.txt"), ir::to_text(module));
  EXPECT_TRUE(ir::equal(ir::parse(text_of(folder / "deep" / "02-two.txt"), registry), module));
}

TEST_F(PipelineTest, LeavesOutByName) {
  Pipeline p;
  p.add<Edit>("one", [](ir::Module& m) { rename_output(m, "one"); });
  p.add<Edit>("two", [](ir::Module& m) { rename_output(m, m.graph("micro").outputs[0].name + ".two"); });
  p.run(module, {.dump = folder, .disabled = {"one"}});
  EXPECT_EQ(module.graph("micro").outputs[0].name, "y.two");
  EXPECT_FALSE(std::filesystem::exists(folder / "01-one.txt"));
  EXPECT_TRUE(std::filesystem::exists(folder / "02-two.txt"));
}

TEST_F(PipelineTest, KeepsWhatAStepNeeds) {
  Pipeline p;
  p.add<Edit>("needed", [](ir::Module&) {});
  p.add<Edit>("fuse", [](ir::Module&) {});
  EXPECT_EQ(message_of([&] { p.run(module, {.disabled = {"needed"}}); }),
            "pass 'needed' cannot be left out; those that can are fuse");
}

TEST_F(PipelineTest, RefusesUnknownNamesBeforeAnythingRuns) {
  Pipeline p;
  bool ran = false;
  p.add<Edit>("needed", [&](ir::Module&) { ran = true; });
  p.add<Edit>("fuse", [&](ir::Module&) { ran = true; });
  EXPECT_EQ(message_of([&] { p.run(module, {.disabled = {"fsue"}}); }),
            "there is no pass 'fsue'; did you mean 'fuse'?");
  EXPECT_EQ(message_of([&] { p.run(module, {.disabled = {"something-else"}}); }),
            "there is no pass 'something-else'; those that can be left out are fuse");
  EXPECT_EQ(message_of([&] { p.run(module, {.disabled = {"neded"}}); }),
            "there is no pass 'neded'; those that can be left out are fuse");
  EXPECT_FALSE(ran);
}

TEST_F(PipelineTest, NamesThePassThatBreaksTheModule) {
  Pipeline p;
  p.add<Edit>("harmless", [](ir::Module&) {});
  p.add<Edit>("careless", [](ir::Module& m) { m.graph("micro").nodes.clear(); });
  p.add<Edit>("never", [](ir::Module&) { FAIL(); });
  EXPECT_EQ(message_of([&] { p.run(module); }), "pass careless: graph 'micro': output 'y' reads 'y' before it is made");
}

TEST_F(PipelineTest, NamesThePassThatThrows) {
  Pipeline p;
  p.add<Edit>("thrower", [](ir::Module&) { fail("cannot"); });
  EXPECT_EQ(message_of([&] { p.run(module); }), "pass thrower: cannot");
}

TEST_F(PipelineTest, SaysWhereItCannotDump) {
  std::ofstream(folder.string()) << "a file, not a folder";
  Pipeline p;
  EXPECT_NE(message_of([&] {
              p.run(module, {.dump = folder / "x"});
            }).find("cannot make the folder " + (folder / "x").string()),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::passes
