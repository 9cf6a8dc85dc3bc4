// Every folder of tests/golden named after a pass: text in, text out.
#include "support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/probe_ops.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/print.h"
#include "trireme/passes/async_tp.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/bucket.h"
#include "trireme/passes/cleanup.h"
#include "trireme/passes/compress_activations.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/fp8.h"
#include "trireme/passes/fuse.h"
#include "trireme/passes/in_flight.h"
#include "trireme/passes/initial.h"
#include "trireme/passes/last_row.h"
#include "trireme/passes/loss_scale.h"
#include "trireme/passes/observe_inputs.h"
#include "trireme/passes/observe_ranges.h"
#include "trireme/passes/offload.h"
#include "trireme/passes/optimizer.h"
#include "trireme/passes/partition.h"
#include "trireme/passes/precision.h"
#include "trireme/passes/propagate.h"
#include "trireme/passes/prune.h"
#include "trireme/passes/quantize_weights.h"
#include "trireme/passes/remat.h"
#include "trireme/passes/round_inputs.h"
#include "trireme/passes/round_weights.h"
#include "trireme/passes/sequence_cache.h"
#include "trireme/passes/split.h"
#include "trireme/passes/stage.h"
#include "trireme/passes/tf32.h"
#include "trireme/passes/validate.h"
#include "trireme/passes/zero.h"
#include "trireme/planner/offload_policy.h"
#include "trireme/planner/remat_plan.h"

namespace trireme::passes {
namespace {

using testing::Golden;
using testing::GoldenOptions;
using testing::take;

// "keep_2,input_3": options have no spaces.
planner::RematPlan remat_plan(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  return planner::RematPlan::parse(text);
}

CompressGradients::Kind compression_kind(const std::string& name) {
  using Kind = CompressGradients::Kind;
  const std::map<std::string, Kind> kinds = {{"bf16", Kind::bf16},       {"int8", Kind::int8},
                                             {"onebit", Kind::onebit},   {"low_rank", Kind::low_rank},
                                             {"largest", Kind::largest}, {"momentum", Kind::momentum}};
  return kinds.at(name);
}

// "rules=*.up.weight=8": one of them.
QuantizeWeights::Options few_bits(GoldenOptions& options) {
  QuantizeWeights::Options o;
  o.format = {std::stoi(take(options, "bits", "8")), std::stoll(take(options, "group", "0"))};
  if (const std::string rule = take(options, "rules", ""); !rule.empty()) {
    const std::size_t equals = rule.rfind('=');
    o.rules.push_back({rule.substr(0, equals), {std::stoi(rule.substr(equals + 1)), 0}});
  }
  o.graphs = {"micro"};
  return o;
}

// "groups=up.weight:0:1+up.bias:0:1": one of them, its members' names, dimensions and elements of a slice.
Prune::Options pruned(GoldenOptions& options) {
  Prune::Options o;
  const std::string score = take(options, "score", "magnitude");
  if (score == "movement") o.score = Prune::Score::movement;
  if (score == "random") o.score = Prune::Score::random;
  o.sparsity = std::stod(take(options, "sparsity", "0.5"));
  o.prunings = std::stoll(take(options, "prunings", "1"));
  o.keep = std::stoll(take(options, "keep", "0"));
  o.of = std::stoll(take(options, "of", "0"));
  o.rewind = take(options, "rewind", "false") == "true";
  const std::int64_t slices = std::stoll(take(options, "slices", "0"));
  if (const std::string names = take(options, "parameters", ""); !names.empty()) o.parameters = split(names, ',');
  if (const std::string members = take(options, "groups", ""); !members.empty()) {
    Prune::Group group{.members = {}, .slices = slices};
    for (const std::string& member : split(members, '+')) {
      const std::vector<std::string> parts = split(member, ':');
      group.members.push_back({parts.at(0), std::stoi(parts.at(1)), std::stoll(parts.at(2))});
    }
    o.groups.push_back(std::move(group));
  }
  return o;
}

Pipeline only(const std::string& pass, const ir::Module& module, GoldenOptions options) {
  Pipeline p;
  if (pass == "async-tp")
    p.add<AsyncTp>(AsyncTp::Options{.axis = "tp", .parts = std::stoll(take(options, "parts", "4"))});
  else if (pass == "autodiff")
    p.add<Autodiff>(
        Autodiff::Options{.f32_gradients = take(options, "f32", "false") == "true", .seed = take(options, "seed", "")});
  else if (pass == "clean-up")
    p.add<CleanUp>();
  else if (pass == "compress-activations")
    p.add<CompressActivations>(CompressActivations::Options{
        take(options, "kind", "bf16") == "int8" ? CompressActivations::Kind::int8 : CompressActivations::Kind::bf16});
  else if (pass == "compress-gradients")
    p.add<CompressGradients>(CompressGradients::Options{.kind = compression_kind(take(options, "kind", "onebit")),
                                                        .fraction = 0.05,
                                                        .rank = 2,
                                                        .error_feedback = take(options, "feedback", "true") == "true",
                                                        .warmup = std::stoll(take(options, "warmup", "0"))});
  else if (pass == "fp8")
    p.add<Fp8>();
  else if (pass == "fuse")
    p.add<Fuse>();
  else if (pass == "initial-state")
    p.add<InitialState>();
  else if (pass == "last-row")
    p.add<LastRow>(LastRow::Options{.graphs = {"micro"}});
  else if (pass == "loss-scale")
    p.add<LossScale>(LossScale::Options{.window = std::stoll(take(options, "window", "2000"))});
  else if (pass == "sequence-cache")
    p.add<SequenceCache>(
        SequenceCache::Options{.graphs = {"micro"}, .rows = 16, .int8 = take(options, "cache", "full") == "int8"});
  else if (pass == "offload") {
    using Which = planner::OffloadPolicy::Which;
    const std::string kinds = take(options, "kinds", "activations");
    const std::string policy = take(options, "policy", "all");
    const planner::OffloadPolicy wanted{.activations = kinds.find("activations") != std::string::npos,
                                        .weights = kinds.find("weights") != std::string::npos,
                                        .optimizer = kinds.find("optimizer") != std::string::npos,
                                        .which = policy == "conv"      ? Which::conv
                                                 : policy == "dynamic" ? Which::dynamic
                                                                       : Which::all,
                                        .smallest = std::stoul(take(options, "smallest", "4096"))};
    Offload::Options o;
    if (wanted.activations) o.activations = planner::activations_to_offload(module.graph("micro"), wanted);
    o.states = planner::states_to_offload(module, wanted);
    o.reloads = planner::states_to_reload(module, o.states, {});
    o.piece = std::stoul(take(options, "piece", "4194304"));
    o.tier = std::stoi(take(options, "tier", "2"));
    o.update_on_host = take(options, "update", "device") == "host";
    p.add<Offload>(o);
  } else if (pass == "optimizer")
    p.add<Optimizer>(Optimizer::Options{.kind = Optimizer::parse(take(options, "kind", "adamw")),
                                        .clip = std::stod(take(options, "clip", "1"))});
  else if (pass == "precision")
    p.add<LowPrecision>(LowPrecision::Options{parse_dtype(take(options, "low", "bf16")).value(), {"micro", "eval"}});
  else if (pass == "prune") {
    p.add<Optimizer>(Optimizer::Options{.kind = Optimizer::parse(take(options, "kind", "adamw"))});
    p.add<Prune>(pruned(options));
  } else if (pass == "quantize-weights")
    p.add<QuantizeWeights>(few_bits(options));
  else if (pass == "round-weights")
    p.add<RoundWeights>(few_bits(options));
  else if (pass == "round-inputs")
    p.add<RoundInputs>(RoundInputs::Options{.graphs = {"micro"}});
  else if (pass == "observe-ranges")
    p.add<ObserveRanges>(ObserveRanges::Options{few_bits(options), "micro"});
  else if (pass == "observe-inputs")
    p.add<ObserveInputs>(ObserveInputs::Options{few_bits(options), "micro"});
  else if (pass == "remat")
    p.add<Remat>(
        Remat::Options{.recompute = planner::forgotten_names(module.graph("micro"), find_chain(module.graph("micro")),
                                                             remat_plan(take(options, "plan", "keep_1")))});
  else if (pass == "bucket")
    p.add<Bucket>(Bucket::Options{.bytes = std::stoul(take(options, "bytes", "1024"))});
  else if (pass == "propagate" || pass == "partition") {
    // "x=batch:dp;*.up.weight=out:tp": options have no spaces. "x=batch:dp@1": with that priority.
    std::vector<Annotation> annotations;
    for (const std::string& item : split(take(options, "sharding", "x=batch:dp;t=batch:dp"), ';')) {
      const std::vector<std::string> pair = split(item, '=');
      const std::vector<std::string> given = split(pair.at(1), '@');
      annotations.push_back({pair.at(0), given.front(), given.size() > 1 ? std::stoi(given[1]) : 0});
    }
    p.add<Propagate>(Propagate::Options{ir::parse_mesh(take(options, "mesh", "dp=2")), annotations});
    Places places;  // "h:1;w:0"
    for (const std::string& item : split(take(options, "places", ""), ';'))
      if (const std::vector<std::string> pair = split(item, ':'); pair.size() == 2)
        places[pair[0]] = std::stoi(pair[1]);
    if (pass == "partition") p.add<Partition>(Partition::Options{.places = places});
  } else if (pass == "stage") {
    p.add<Stage>(
        Stage::Options{.parts = std::stoi(take(options, "parts", "2")), .cuts = split(take(options, "cuts", ""), ',')});
  } else if (pass == "split")
    p.add<Split>(Split::Options{.stages = std::stoi(take(options, "stages", "2")),
                                .stage = std::stoi(take(options, "stage", "0")),
                                .parts = std::stoi(take(options, "parts", "2"))});
  else if (pass == "in-flight") {
    const int ahead = std::stoi(take(options, "ahead", "1"));
    const bool delayed = take(options, "delayed", "false") == "true";
    p.add<InFlight>(
        InFlight::Options{.ahead = ahead, .delayed = delayed, .slots = ahead + 1, .versions = delayed ? 1 : ahead});
  } else if (pass == "tf32")
    p.add<Tf32>();
  else if (pass == "zero")
    p.add<Zero>(Zero::Options{.stage = std::stoi(take(options, "stage", "1")),
                              .whole_sums = take(options, "whole_sums", "false") == "true"});
  else if (pass == "validate")
    p.add<Validate>();
  EXPECT_EQ(p.names().back(), pass);
  EXPECT_TRUE(options.empty()) << "unknown option " << options.begin()->first;
  return p;
}

struct Case {
  std::string pass;
  Golden golden;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* pass : {"async-tp",
                           "autodiff",
                           "bucket",
                           "clean-up",
                           "compress-activations",
                           "compress-gradients",
                           "fp8",
                           "fuse",
                           "in-flight",
                           "initial-state",
                           "last-row",
                           "loss-scale",
                           "observe-inputs",
                           "observe-ranges",
                           "offload",
                           "optimizer",
                           "partition",
                           "precision",
                           "propagate",
                           "prune",
                           "quantize-weights",
                           "remat",
                           "round-inputs",
                           "round-weights",
                           "sequence-cache",
                           "split",
                           "stage",
                           "tf32",
                           "validate",
                           "zero"})
    for (const Golden& golden : testing::goldens(pass)) all.push_back({pass, golden});
  return all;
}

class PassGolden : public ::testing::TestWithParam<Case> {};

TEST_P(PassGolden, Matches) {
  const ir::Registry registry = testing::probe_registry();
  testing::check_golden(GetParam().golden, [&](const std::string& text, const GoldenOptions& options) {
    ir::Module module = ir::parse(text, registry);
    only(GetParam().pass, module, options).run(module);
    std::string result = ir::to_text(module);
    for (ir::Graph& graph : module.graphs) graph.compact();
    EXPECT_TRUE(ir::equal(ir::parse(result, registry), module));
    return result;
  });
}

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.pass + "_" + info.param.golden.name;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, PassGolden, ::testing::ValuesIn(cases()), test_name);

}  // namespace
}  // namespace trireme::passes
