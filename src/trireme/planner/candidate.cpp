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

// How the ranks of a layer share it: over tp, and the images of models that look at some over h and w.
std::vector<LayerKey> shares(const Space& space, int ranks) {
  std::vector<LayerKey> all;
  for (const int together : divisors(ranks)) {
    if (together > space.max_tp) continue;
    for (const int tp : divisors(together)) {
      if (tp > 1 && !space.tensor) continue;
      for (const int h : divisors(together / tp)) {
        const int w = together / tp / h;
        // Widths only once heights are as short: strips have the longer edges.
        if (h * w > 1 && (!space.spatial || w > h)) continue;
        LayerKey key;
        key.tp = tp;
        key.h = h;
        key.w = w;
        all.push_back(key);
      }
    }
  }
  return all;
}

std::vector<Candidate> meshes(const Space& space) {
  if (!space.fixed_meshes.empty()) return space.fixed_meshes;
  std::vector<Candidate> all;
  for (int ranks = space.ranks;; ranks /= 2) {
    for (const LayerKey& share : shares(space, ranks))
      for (const int pp : divisors(ranks / share.ranks())) {
        if (pp > space.layers) continue;
        Candidate c{.pp = pp, .dp = ranks / share.ranks() / pp};
        c.layer = share;
        all.push_back(c);
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
  const LayerKey& layer = candidate.layer;
  for (const auto& [axis, size] :
       {std::pair(ir::kPipelineAxis, candidate.pp), std::pair(ir::kDataAxis, candidate.dp),
        std::pair(ir::kTensorAxis, layer.tp), std::pair(ir::kHeightAxis, layer.h), std::pair(ir::kWidthAxis, layer.w)})
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

std::string offload_text(const Offload& offload) {
  if (!offload.any()) return "none";
  if (!offload.activations) return "optimizer";
  return offload.optimizer ? "activations,optimizer" : "activations";
}

const char* compression_text(Compression compression) {
  switch (compression) {
    case Compression::bf16: return "bf16";
    case Compression::int8: return "int8";
    case Compression::configured: break;
  }
  return "";
}

std::string describe(const Candidate& c) {
  std::string text = mesh_text(c);
  if (c.pp > 1) text += " · " + pipeline_text(c.pipeline);
  text += fmt::format(" · micro-batch {}", c.layer.micro_batch);
  if (c.zero > 0) text += fmt::format(" · ZeRO-{}", c.zero);
  if (c.layer.sequence) text += " · sequence";
  if (c.layer.remat != RematPolicy::Kind::none) text += fmt::format(" · remat {}", remat_text(c.layer.remat));
  if (c.layer.sharding > 0) text += " · shardings chosen by op";
  if (c.offload.any()) text += " · offload " + offload_text(c.offload);
  if (!c.layer.precision.empty()) text += " · " + c.layer.precision;
  if (c.compress != Compression::configured) text += fmt::format(" · compress {}", compression_text(c.compress));
  return text;
}

std::vector<Candidate> enumerate(const Space& space) {
  std::vector<Candidate> all;
  // Schedules, cuts and ZeRO of a mesh and its layers' key.
  const auto add_orders = [&](Candidate c) {
    for (const int zero : shared(space.zero, c.dp))
      for (std::size_t p = 0; p < (c.pp > 1 ? space.pipelines.size() : 1); ++p) {
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
        const std::int64_t micro = space.batch / c.dp / c.layer.micro_batch;
        if (c.pp > 1 && micro < 2 && p > 0) continue;
        for (const Offload& offload : space.offload)
          for (const Compression compress : c.dp > 1 ? space.compressions : std::vector{Compression::configured}) {
            c.offload = offload;
            c.compress = compress;
            all.push_back(c);
          }
      }
  };
  for (Candidate c : meshes(space))
    for (const std::int64_t rows : micro_batches(space, c.dp))
      for (const bool sequence :
           c.layer.tp > 1 ? space.sequence : std::vector{space.sequence.size() == 1 && space.sequence.front()})
        for (const RematPolicy::Kind remat : space.remat)
          for (const std::string& precision : space.precisions)
            for (int sharding = 0; sharding < (c.layer.tp > 1 && !sequence ? space.shardings : 1); ++sharding) {
              c.layer.micro_batch = rows;
              c.layer.sequence = sequence;
              c.layer.remat = remat;
              c.layer.precision = precision;
              c.layer.sharding = sharding;
              add_orders(c);
            }
  return all;
}

bool is_well_known(const Candidate& c, const Space& space) {
  if (c.offload.any() || c.layer.h * c.layer.w > 1 || !c.layer.precision.empty()) return false;
  if (c.compress != Compression::configured) return false;
  if (c.pp == 1 && c.layer.tp == 1) return c.zero == 0 || c.zero == 3;
  const int widest = std::min(space.max_tp, space.ranks);
  const bool usual = c.pp == 1 || c.pipeline.kind == Kind::one_f_one_b || c.pipeline.kind == Kind::interleaved;
  return space.tensor && c.layer.tp == widest && usual && c.layer.sharding == 0;
}

}  // namespace trireme::planner
