// Every program pass has a folder in tests/golden/program: module text in, the program's text after that pass out. The
// folder "lower" has programs as they are emitted.
#include "trireme/program/pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "support/folder.h"
#include "support/golden.h"
#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"
#include "trireme/ir/verify.h"
#include "trireme/program/lower.h"
#include "trireme/program/print.h"
#include "trireme/program/verify.h"

namespace trireme::program {
namespace {

using testing::Golden;
using testing::GoldenOptions;
using testing::take;

// "F0,F1,B0": options have no spaces.
std::vector<Action> actions_of(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  return parse_actions(text);
}

LowerOptions lower_options(GoldenOptions options) {
  LowerOptions lowering{.body = take(options, "body", "micro"),
                        .tail = take(options, "tail", ""),
                        .micro_batches = std::stoi(take(options, "micro_batches", "1")),
                        .device = take(options, "device", "cpu") == "cuda" ? device::Kind::cuda : device::Kind::cpu,
                        .reuse_in_place = take(options, "reuse", "true") == "true",
                        .collectives = {.ahead = std::stoul(take(options, "ahead", "1048576"))},
                        .weight_gradients = {.overlap = take(options, "weight_gradients", "") == "overlap", .lag = 1},
                        .actions = actions_of(take(options, "actions", ""))};
  EXPECT_TRUE(options.empty()) << "unknown option " << options.begin()->first;
  return lowering;
}

Program after(const std::string& pass, const ir::Module& module, const LowerOptions& options) {
  Program program = emit(module, lay_out(module), options);
  verify(program);
  if (pass == "lower") return program;
  for (const Pass& one : program_passes()) {
    one.run(program, options);
    verify(program);
    if (one.name == pass) return program;
  }
  fail("there is no pass '{}'", pass);
}

struct Case {
  std::string pass;
  Golden golden;
};

std::vector<Case> cases() {
  std::vector<std::string> names = {"lower"};
  for (const Pass& pass : program_passes()) names.emplace_back(pass.name);
  std::vector<Case> all;
  for (const std::string& name : names)
    for (const Golden& golden : testing::goldens("program/" + name)) all.push_back({name, golden});
  return all;
}

class ProgramPassGolden : public ::testing::TestWithParam<Case> {};

TEST_P(ProgramPassGolden, Matches) {
  const ir::Registry registry = testing::probe_registry();
  testing::check_golden(GetParam().golden, [&](const std::string& text, const GoldenOptions& options) {
    const ir::Module module = ir::parse(text, registry);
    ir::verify(module);
    return to_text(after(GetParam().pass, module, lower_options(options)));
  });
}

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.pass + "_" + info.param.golden.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ProgramPassGolden, ::testing::ValuesIn(cases()), test_name);

TEST(ProgramPasses, EachHasAReasonAndAGolden) {
  for (const Pass& pass : program_passes()) {
    EXPECT_GT(std::string(pass.reason).size(), 20U) << pass.name;
    EXPECT_FALSE(testing::goldens(std::string("program/") + pass.name).empty()) << pass.name;
  }
}

// Whatever pass they are about: lowered to the end, the checker finds nothing.
TEST(ProgramPasses, EveryGoldenIsSound) {
  const ir::Registry registry = testing::probe_registry();
  for (const Case& one : cases()) {
    const std::string name = one.pass + "/" + one.golden.name;
    std::ifstream in(one.golden.in);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::ifstream out(one.golden.out);
    if (std::string first; std::getline(out, first) && first.starts_with("error: ")) continue;
    CheckReport checked;
    LowerOptions options = lower_options(testing::options_of(text));
    options.reports.checked = &checked;
    const ir::Module module = ir::parse(text, registry);
    try {
      lower(module, lay_out(module), options);
    } catch (const Error& e) {
      ADD_FAILURE() << name << ": " << e.message();
    }
    EXPECT_GT(checked.instructions, 0U) << name;
  }
}

constexpr const char* kModule = R"(module {
  graph micro {
    input %x : f32[16]
    %a = relu(%x) : f32[16]
    output a = %a
  }
}
)";

TEST(ProgramPasses, AreTimedAndWrittenOutByNumber) {
  const ir::Registry registry = testing::probe_registry();
  const ir::Module module = ir::parse(kModule, registry);
  const test::Folder folder;
  std::vector<std::string> seen;
  CheckReport checked;
  LowerOptions options;
  options.reports = {.dump = folder.path("passes"),
                     .first_number = 14,
                     .on_pass =
                         [&](const std::string& pass, double seconds) {
                           EXPECT_GE(seconds, 0);
                           seen.push_back(pass);
                         },
                     .checked = &checked};
  const Program program = lower(module, lay_out(module), options);
  EXPECT_EQ(checked.instructions, program.instructions.size());
  ASSERT_EQ(seen.size(), program_passes().size());
  EXPECT_EQ(seen.front(), std::string("step-") + program_passes().front().name);
  std::size_t number = 14;
  const auto text_of = [&](const std::string& pass) {
    const std::string file = folder.path(fmt::format("passes/{:02}-step-{}.txt", number++, pass));
    std::ifstream in(file);
    EXPECT_TRUE(in.good()) << file;
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(text_of("lower"), to_text(emit(module, lay_out(module), {})));
  std::string last;
  for (const Pass& pass : program_passes()) last = text_of(pass.name);
  EXPECT_EQ(last, to_text(program));
}

TEST(ProgramPasses, TheErrorOfAPassNamesIt) {
  const ir::Registry registry = testing::probe_registry();
  const ir::Module module =
      ir::parse("module {\n  graph micro {\n    input %x : f32[16]\n    %y = probe(%x) : f32[16]\n  }\n}\n", registry);
  try {
    lower(module, lay_out(module), {});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "pass workspaces of program 'step': lowering probe 'y': no CPU kernel for probe(f32[16])");
  }
}

// A pass that leaves a program broken is the one that is named, and not a later one or the full check: whatever it
// breaks, wherever it stands in the list.
TEST(ProgramPasses, AProgramIsVerifiedAfterEachOfThem) {
  const ir::Registry registry = testing::probe_registry();
  const ir::Module module = ir::parse(kModule, registry);
  const Pass breaks{"breaks", "a pass that makes an instruction wait for an event that nothing records",
                    [](Program& p, const LowerOptions&) { p.instructions.front().waits = {7}; }};
  for (std::size_t place = 0; place <= program_passes().size(); ++place) {
    std::vector<Pass> passes(program_passes().begin(), program_passes().end());
    passes.insert(passes.begin() + static_cast<std::ptrdiff_t>(place), breaks);
    Program program = emit(module, lay_out(module), {});
    try {
      run_passes(program, {}, passes);
      ADD_FAILURE() << "nothing is said at place " << place;
    } catch (const Error& e) {
      EXPECT_EQ(e.message(),
                "pass breaks of program 'step': instruction 0 (input 'x', micro-batch 0) waits for event 7, which no "
                "instruction before it records");
    }
  }
}

// And before the first.
TEST(ProgramPasses, AProgramIsVerifiedAsItIsEmitted) {
  const ir::Registry registry = testing::probe_registry();
  const ir::Module module = ir::parse(kModule, registry);
  Program program = emit(module, lay_out(module), {});
  program.instructions.front().waits = {7};
  EXPECT_THROW(run_passes(program, {}, {}), Error);
}

}  // namespace
}  // namespace trireme::program
