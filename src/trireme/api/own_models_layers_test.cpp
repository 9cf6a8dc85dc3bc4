// Models of attention and of convolutions drawn at random, on meshes, by annotations and in precisions drawn at random,
// train like one rank or are refused before they do.
//
//   TRIREME_OWN_MODELS=500      draws that many of each
//   TRIREME_OWN_MODELS_FROM=40  … from that seed on
//   TRIREME_OWN_MODEL=17        draws seed 17 alone
//   TRIREME_OWN_MODEL_IN=f32    … in another precision than its own, to tell rounding from faults
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <span>

#include "support/prices.h"
#include "trireme/api/own_models_test.h"

namespace {

using trireme::testing::apart;
using trireme::testing::Apart;
using trireme::testing::Close;
using trireme::testing::Draw;
using trireme::testing::OwnRun;
using trireme::testing::plain_sgd;
using trireme::testing::run_of;

// Tokens through blocks of attention and products.
struct DrawnAttention {
  std::int64_t vocab, positions, width;
  bool tied;
  struct Block {
    tri::AttentionOptions attention;
    bool documents, rms, gated;
    std::int64_t hidden;
  };
  std::vector<Block> blocks;

  explicit DrawnAttention(Draw& draw)
      : vocab(draw.one_of<std::int64_t>({11, 12, 13})),
        positions(draw.one_of<std::int64_t>({6, 8, 9, 12})),
        tied(draw.below(3) == 0) {
    const std::int64_t heads = draw.one_of<std::int64_t>({2, 3, 4, 6});
    width = heads * draw.one_of<std::int64_t>({2, 4});
    for (std::int64_t i = 1 + draw.below(3); i > 0; --i) {
      Block block;
      std::vector<std::int64_t> groups;
      for (std::int64_t g = 1; g <= heads; ++g)
        if (heads % g == 0) groups.push_back(g);
      block.attention.heads = heads;
      block.attention.kv_heads = draw.one_of(groups);
      block.attention.causal = draw.below(4) != 0;
      block.documents = block.attention.causal && draw.below(3) == 0;
      block.attention.rotary = draw.below(3) == 0 ? 0 : draw.one_of<double>({100, 10000});
      block.attention.deviation = 0.4;
      block.rms = draw.coin();
      block.gated = draw.coin();
      block.hidden = draw.one_of<std::int64_t>({10, 12, 15, 16});
      blocks.push_back(block);
    }
  }

  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    tri::Value x = embedding(b.scope("embed"), in.tokens, vocab, width, tied ? 0.2 : 0.5);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      const tri::Builder k = b.scope("blocks", static_cast<int>(i));
      const auto normed = [&](const char* name, const tri::Value& v) {
        return block.rms ? rms_norm(k.scope(name), v) : layer_norm(k.scope(name), v);
      };
      tri::AttentionOptions options = block.attention;
      if (block.documents) options.starts = tri::document_starts(in.tokens, 3);
      x = x + attention(k.scope("attn"), normed("n1", x), options);
      const tri::Value n = normed("n2", x);
      const tri::Value up = linear(k.scope("up"), n, block.hidden, {.deviation = 0.3});
      const tri::Value h = block.gated
                               ? swiglu(linear(k.scope("gate"), n, block.hidden, {.bias = false, .deviation = 0.3}), up)
                               : gelu(up);
      x = x + linear(k.scope("down"), h, width, {.deviation = 0.3});
    }
    x = rms_norm(b.scope("norm"), x);  // large logits make more of the rounding of 16 bits than a fault would
    if (!tied) return linear_cross_entropy(b.scope("out"), x, in.targets, vocab, 0.2);
    const tri::Value table = b.scope("embed").parameter("weight", {vocab, width}, tri::Init::normal(0.2));
    return linear_cross_entropy(b.scope("out"), x, in.targets, table);
  }

  tri::Data data() const {
    const auto write = [vocab = vocab](std::int64_t i, std::span<std::int32_t> tokens,
                                       std::span<std::int32_t> targets) {
      for (std::size_t p = 0; p < tokens.size(); ++p) {
        const auto at = static_cast<std::int64_t>(p);
        tokens[p] = static_cast<std::int32_t>((5 * i + at * at + i * at) % vocab);
        targets[p] = static_cast<std::int32_t>((3 * i + at * (i % 4)) % vocab);
      }
    };
    return tri::own_tokens(80, write, {.vocab = vocab, .context = positions, .order = "sequential", .holdout = 0.1});
  }

  static constexpr bool kImages = false;
  bool normalised() const { return false; }
};

// Images through convolutions and pools of any size, stride and dilation.
struct DrawnImages {
  std::int64_t size, channels;
  bool flat;
  struct Layer {
    std::int64_t out;
    tri::ConvOptions conv;
    bool norm;
    std::int64_t pool;  // 0: none, 1: the largest, 2: the mean
    tri::PoolOptions window;
  };
  std::vector<Layer> layers;

  explicit DrawnImages(Draw& draw)
      : size(draw.one_of<std::int64_t>({9, 11, 12, 13, 16})),
        channels(draw.one_of<std::int64_t>({1, 2, 3})),
        flat(draw.below(3) == 0) {
    std::int64_t side = size, in = channels;
    for (std::int64_t i = 2 + draw.below(3); i > 0; --i) {
      Layer layer;
      layer.out = draw.one_of<std::int64_t>({4, 5, 6, 8});
      layer.conv.kernel = draw.one_of<std::int64_t>({1, 2, 3, 3, 5});
      layer.conv.dilation = draw.below(3) == 0 ? 2 : 1;
      const std::int64_t reach = (layer.conv.kernel - 1) * layer.conv.dilation;
      layer.conv.padding = draw.below(reach / 2 + 1 + (reach > 0 ? 1 : 0));
      layer.conv.stride = draw.one_of<std::int64_t>({1, 1, 2, 3});
      std::vector<std::int64_t> groups;
      for (std::int64_t g = 1; g <= in; ++g)
        if (in % g == 0 && layer.out % g == 0) groups.push_back(g);
      layer.conv.groups = draw.coin() ? 1 : draw.one_of(groups);
      layer.norm = draw.coin();
      layer.pool = draw.below(4);
      layer.window.kernel = draw.one_of<std::int64_t>({2, 3});
      layer.window.stride = draw.one_of<std::int64_t>({1, 2, 3});
      layer.window.padding = draw.below(2);
      const std::int64_t made = (side + 2 * layer.conv.padding - reach - 1) / layer.conv.stride + 1;
      if (side + 2 * layer.conv.padding <= reach || made < 3) continue;  // too little is left
      side = made;
      const std::int64_t pooled = (side + 2 * layer.window.padding - layer.window.kernel) / layer.window.stride + 1;
      if (layer.pool > 2 || pooled < 3) layer.pool = 0;
      if (layer.pool > 0) side = pooled;
      in = layer.out;
      layers.push_back(layer);
    }
    if (layers.empty()) layers.push_back({.out = 4, .conv = {}, .norm = true, .pool = 0, .window = {}});
  }

  tri::Value operator()(tri::Builder& b, const tri::Batch& in) const {
    tri::Value x = in.images;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Layer& layer = layers[i];
      const tri::Builder k = b.scope("layers", static_cast<int>(i));
      x = conv(k.scope("conv"), x, layer.out, layer.conv);
      if (layer.norm) x = batch_norm(k.scope("norm"), x);
      x = silu(x);
      if (layer.pool == 1) x = max_pool(x, layer.window);
      if (layer.pool == 2) x = avg_pool(x, layer.window);
    }
    const tri::Extents shape = x.shape();
    x = flat ? reshape(x, {shape[0], shape[1] * shape[2] * shape[3]}) : global_avg_pool(x);
    return cross_entropy(b, linear(b.scope("out"), x, 4, {.deviation = 0.3}), in.labels);
  }

  tri::Data data() const {
    const auto read = [](std::int64_t i, std::span<float> pixels) {
      for (std::size_t p = 0; p < pixels.size(); ++p)
        pixels[p] = std::sin(0.37F * static_cast<float>((13 * i) % 97 + (i % 5 + 1) * static_cast<std::int64_t>(p)));
      return static_cast<std::int32_t>(i % 4);
    };
    return tri::own_images(80, read,
                           {.size = size, .channels = channels, .classes = 4, .order = "sequential", .holdout = 0.1});
  }

  static constexpr bool kImages = true;
  bool normalised() const {
    return std::any_of(layers.begin(), layers.end(), [](const Layer& layer) { return layer.norm; });
  }
};

struct DrawnPlan {
  tri::TrainOptions options, one;  // of the ranks, and of one rank with the same micro-batches
  tri::Plan plan;
  std::string text;
};

template <class Model>
DrawnPlan draw_plan(Draw& draw, const Model& model) {
  DrawnPlan d;
  d.options = plain_sgd(3);
  d.options.batch = 12;
  d.options.precision = draw.one_of<std::string>({"f32", "f32", "f32", "bf16", "fp16"});
  if (const char* in = std::getenv("TRIREME_OWN_MODEL_IN")) d.options.precision = in;
  tri::Plan& plan = d.plan;
  plan.mesh = Model::kImages
                  ? draw.one_of<std::string>({"h=2", "w=2", "h=2,w=2", "h=3", "dp=2,h=2", "w=2,dp=3", "tp=2",
                                              "tp=2,h=2", "pp=2,h=2", "pp=2,dp=2,w=2", "dp=2,tp=2", "dp=3", "tp=3,w=2"})
                  : draw.one_of<std::string>({"tp=2", "tp=3", "tp=4", "dp=2", "dp=3", "dp=2,tp=2", "pp=2,tp=2",
                                              "tp=3,pp=2", "pp=2,dp=2", "pp=2,dp=2,tp=2"});
  const auto has = [&](const char* axis) { return plan.mesh.find(axis) != std::string::npos; };
  const std::int64_t replicas = has("dp=2") ? 2 : has("dp=3") ? 3 : 1;
  d.options.micro_batch =
      replicas == 3 ? draw.one_of<std::int64_t>({1, 2, 4}) : draw.one_of<std::int64_t>({1, 2, 3, 6});
  // Batch norms over a few rows make more of the rounding of 16 bits than a fault would, and those of bf16 over any.
  if (model.normalised() && d.options.precision != "f32")
    d.options.precision = d.options.micro_batch * replicas < 6 ? "f32" : "fp16";
  if (d.options.precision == "fp16") d.options.loss_scale = 128;
  d.one = d.options;
  d.one.micro_batch *= replicas;
  if (replicas > 1) plan.zero = static_cast<int>(draw.below(4));
  if (has("pp=2")) plan.pipeline = draw.one_of<std::string>({"1f1b", "gpipe", "zero-bubble"});
  // Convolutions alone save nothing that is cheap to make again.
  plan.remat = draw.one_of<std::string>({"none", "none", Model::kImages ? "optimal" : "selective", "optimal"});
  const std::vector<tri::Parameter> parameters = tri::Trainer{model, model.data(), d.one}.parameter_list();
  const std::int64_t shards = has("tp=2") ? 2 : has("tp=3") ? 3 : has("tp=4") ? 4 : 1;
  const auto annotate = [&](const std::string& axis, std::int64_t ranks) {
    // Mostly what ranks divide: the rest is padded, or refused.
    for (int attempt = 0; attempt < 8; ++attempt) {
      const tri::Parameter& p = draw.one_of(parameters);
      const std::int64_t dimension = draw.below(std::ssize(p.shape));
      std::string& given = plan.sharding[p.name];
      const bool divides = p.shape[static_cast<std::size_t>(dimension)] % ranks == 0;
      if (given.find(axis) == std::string::npos && (divides || (std::ssize(p.shape) < 3 && draw.below(3) == 0))) {
        given += (given.empty() ? "" : ",") + std::to_string(dimension) + ":" + axis;
        return;
      }
      if (given.empty()) plan.sharding.erase(p.name);
    }
  };
  if (shards > 1)
    for (std::int64_t a = 1 + draw.below(3); a > 0; --a) annotate("tp", shards);
  if (replicas > 1 && draw.coin()) annotate("dp", replicas);
  if constexpr (!Model::kImages) {
    if (shards > 1 && model.positions % shards == 0) {
      if (draw.below(4) == 0) plan.sharding["tokens"] = "sequence:tp";
      plan.sequence = draw.below(3) == 0;
    }
    if (shards > 1 && !plan.sharding.contains("tokens") && d.one.micro_batch % (replicas * shards) == 0 && draw.coin())
      plan.sharding["tokens"] = "batch:tp";
  }
  d.text = plan.mesh + " zero=" + std::to_string(plan.zero) + " " + plan.pipeline + " " + plan.remat + " " +
           d.options.precision + " micro-batch " + std::to_string(d.options.micro_batch);
  if (plan.sequence) d.text += " sequence";
  for (const auto& [name, dimension] : plan.sharding) d.text.append(" ").append(name).append("=").append(dimension);
  return d;
}

std::int64_t number_of(const char* variable, std::int64_t otherwise) {
  const char* given = std::getenv(variable);
  return given == nullptr ? otherwise : std::atoll(given);
}

template <class Model>
void expect_drawn(std::int64_t otherwise) {
  const std::int64_t only = number_of("TRIREME_OWN_MODEL", -1);
  const std::int64_t first = only >= 0 ? only : number_of("TRIREME_OWN_MODELS_FROM", 0);
  const std::int64_t count = only >= 0 ? 1 : number_of("TRIREME_OWN_MODELS", otherwise);
  std::int64_t refused = 0;
  for (std::int64_t seed = first; seed < first + count; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed) + 1000);
    const Model model(draw);
    const DrawnPlan d = draw_plan(draw, model);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + d.text);
    if (only >= 0) std::printf("%s\n", d.text.c_str());
    try {
      const OwnRun many = run_of(tri::Trainer{model, model.data(), d.options, d.plan});
      const OwnRun one = run_of(tri::Trainer{model, model.data(), d.one});
      const bool low = d.options.precision != "f32";
      // In 16 bits each rank rounds its terms of a sum, by up to 2⁻⁹ of each.
      const Close close = low ? Close{1e-2, 0.05, 1} : Close{2e-5, 5e-4, 0.05};
      const Apart own = apart(one, many, close);
      EXPECT_LE(own.loss, 1) << "losses";
      EXPECT_LE(own.weights, 1) << own.worst;
      if (only >= 0) std::printf("losses %g to %g\n", one.losses.front(), one.losses.back());
      if (std::getenv("TRIREME_OWN_MODELS_SHOWN") != nullptr)
        std::printf("seed %ld: %.3f %.3f %s [%s]\n", static_cast<long>(seed), own.loss, own.weights, d.text.c_str(),
                    own.worst.c_str());
      // The comparison can fail: with gradients a little too large it does.
      tri::TrainOptions other = d.one;
      other.lr *= low ? 1.2 : 1.002;
      EXPECT_GT(apart(one, run_of(tri::Trainer{model, model.data(), other}), close).weights, 1);
    } catch (const tri::Error& e) {
      EXPECT_EQ(e.kind(), tri::Error::Kind::request) << e.message();
      EXPECT_NE(e.message().find("nearest"), std::string::npos) << "says what works: " << e.message();
      if (only >= 0 || std::getenv("TRIREME_OWN_MODELS_SHOWN") != nullptr)
        std::printf("seed %ld: %s\n    refused: %s\n", static_cast<long>(seed), d.text.c_str(), e.message().c_str());
      ++refused;
    }
  }
  std::printf("%ld of %ld refused\n", static_cast<long>(refused), static_cast<long>(count));
  if (only < 0) {
    EXPECT_LT(3 * refused, count) << "too many were refused";
  }
}

TEST(OwnModels, DrawnAttentionTrainsLikeOneRankOrIsRefused) { expect_drawn<DrawnAttention>(6); }

TEST(OwnModels, DrawnConvolutionsTrainLikeOneRankOrAreRefused) { expect_drawn<DrawnImages>(6); }

}  // namespace
