#include "trireme/planner/candidate.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/ir/axes.h"

namespace trireme::planner {
namespace {

using Kind = program::PipelineName::Kind;

std::vector<int> divisors(int of) {
  std::vector<int> all;
  for (int d = 1; d <= of; ++d)
    if (of % d == 0) all.push_back(d);
  return all;
}

std::vector<Candidate> meshes(const Space& space) {
  if (!space.fixed_meshes.empty()) return space.fixed_meshes;
  std::vector<Candidate> all;
  for (int ranks = space.ranks;; ranks /= 2) {
    for (const int tp : divisors(ranks)) {
      if (tp > space.max_tp || (tp > 1 && !space.tensor)) continue;
      for (const int pp : divisors(ranks / tp)) {
        if (pp > space.layers) continue;
        Candidate c{.pp = pp, .dp = ranks / tp / pp};
        c.layer.tp = tp;
        all.push_back(c);
      }
    }
    if (!space.fewer_ranks || ranks % 2 != 0) return all;
  }
}

std::vector<std::int64_t> micro_batches(const Space& space, int dp) {
  if (space.batch % dp != 0) return {};
  const std::int64_t share = space.batch / dp;
  std::vector<std::int64_t> all = space.micro_batches;
  if (all.empty()) {
    for (std::int64_t rows = 1; rows <= share; rows *= 2) all.push_back(rows);
    if (all.back() != share) all.push_back(share);
  }
  std::erase_if(all, [&](std::int64_t rows) { return share % rows != 0; });
  return all;
}

std::vector<int> shared(const std::vector<int>& zero, int dp) {
  if (dp > 1) return zero;
  return {zero.size() == 1 ? zero.front() : 0};
}

}  // namespace

std::string mesh_text(const Candidate& candidate) {
  std::string text;
  for (const auto& [axis, size] : {std::pair(ir::kPipelineAxis, candidate.pp), std::pair(ir::kDataAxis, candidate.dp),
                                   std::pair(ir::kTensorAxis, candidate.layer.tp)})
    if (size > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis, size);
  return text.empty() ? fmt::format("{}=1", ir::kDataAxis) : text;
}

std::string pipeline_text(const program::PipelineName& pipeline) {
  switch (pipeline.kind) {
    case Kind::sequential: return "sequential";
    case Kind::gpipe: return "gpipe";
    case Kind::one_f_one_b: return "1f1b";
    case Kind::interleaved: return fmt::format("interleaved:{}", pipeline.chunks);
    case Kind::zero_bubble: return "zero-bubble";
    case Kind::zero_bubble_auto: return "zero-bubble:auto";
    case Kind::pipedream: return "pipedream";
    case Kind::pipedream_2bw: return "pipedream-2bw";
    case Kind::file: break;
  }
  return "file:" + pipeline.path;
}

const char* remat_text(RematPolicy::Kind kind) {
  switch (kind) {
    case RematPolicy::Kind::none: return "none";
    case RematPolicy::Kind::every: return "every";
    case RematPolicy::Kind::sqrt: return "sqrt";
    case RematPolicy::Kind::selective: return "selective";
    case RematPolicy::Kind::optimal: return "optimal";
    case RematPolicy::Kind::full: break;
  }
  return "full";
}

std::string describe(const Candidate& c) {
  std::string text = mesh_text(c);
  if (c.pp > 1) text += " · " + pipeline_text(c.pipeline);
  text += fmt::format(" · micro-batch {}", c.layer.micro_batch);
  if (c.zero > 0) text += fmt::format(" · ZeRO-{}", c.zero);
  if (c.layer.sequence) text += " · sequence";
  if (c.layer.remat != RematPolicy::Kind::none) text += fmt::format(" · remat {}", remat_text(c.layer.remat));
  if (c.layer.sharding > 0) text += " · shardings chosen by op";
  return text;
}

std::vector<Candidate> enumerate(const Space& space) {
  std::vector<Candidate> all;
  for (Candidate c : meshes(space))
    for (const std::int64_t rows : micro_batches(space, c.dp))
      for (const bool sequence :
           c.layer.tp > 1 ? space.sequence : std::vector{space.sequence.size() == 1 && space.sequence.front()})
        for (const RematPolicy::Kind remat : space.remat)
          for (int sharding = 0; sharding < (c.layer.tp > 1 && !sequence ? space.shardings : 1); ++sharding)
            for (const int zero : shared(space.zero, c.dp))
              for (std::size_t p = 0; p < (c.pp > 1 ? space.pipelines.size() : 1); ++p) {
                c.layer.micro_batch = rows;
                c.layer.sequence = sequence;
                c.layer.remat = remat;
                c.layer.sharding = sharding;
                c.zero = zero;
                c.pipeline = space.pipelines[p];
                if (c.parts() > space.layers) continue;
                if (c.pp > 1 && !space.stages.empty()) {
                  const auto own = std::find_if(space.stages.begin(), space.stages.end(),
                                                [&](const auto& layers) { return std::ssize(layers) == c.parts(); });
                  if (own == space.stages.end()) continue;
                  c.stages = *own;
                }
                // With one micro-batch there is nothing to be ordered.
                const std::int64_t micro = space.batch / c.dp / rows;
                if (c.pp > 1 && micro < 2 && p > 0) continue;
                all.push_back(c);
              }
  return all;
}

bool is_well_known(const Candidate& c, const Space& space) {
  if (c.pp == 1 && c.layer.tp == 1) return c.zero == 0 || c.zero == 3;
  const int widest = std::min(space.max_tp, space.ranks);
  const bool usual = c.pp == 1 || c.pipeline.kind == Kind::one_f_one_b || c.pipeline.kind == Kind::interleaved;
  return space.tensor && c.layer.tp == widest && usual && c.layer.sharding == 0;
}

}  // namespace trireme::planner
