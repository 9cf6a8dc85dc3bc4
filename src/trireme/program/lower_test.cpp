#include "trireme/program/lower.h"

#include <gtest/gtest.h>

#include "support/golden.h"
#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/ir/print.h"
#include "trireme/ir/verify.h"
#include "trireme/program/check.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

using testing::Golden;
using testing::GoldenOptions;
using testing::take;

class LowerGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(LowerGolden, Matches) {
  const ir::Registry registry = testing::probe_registry();
  testing::check_golden(GetParam(), [&](const std::string& text, GoldenOptions options) {
    const ir::Module module = ir::parse(text, registry);
    ir::verify(module);
    const LowerOptions lowering{
        .body = take(options, "body", "micro"),
        .tail = take(options, "tail", ""),
        .micro_batches = std::stoi(take(options, "micro_batches", "1")),
        .reuse_in_place = take(options, "reuse", "true") == "true",
        .weight_gradients = {.overlap = take(options, "weight_gradients", "") == "overlap", .lag = 1}};
    EXPECT_TRUE(options.empty()) << "unknown option " << options.begin()->first;
    const Program program = lower(module, lay_out(module), lowering);
    check(program);
    return to_text(program);
  });
}

INSTANTIATE_TEST_SUITE_P(All, LowerGolden, ::testing::ValuesIn(testing::goldens("lower")),
                         [](const ::testing::TestParamInfo<Golden>& golden) { return golden.param.name; });

}  // namespace
}  // namespace trireme::program
