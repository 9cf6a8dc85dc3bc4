#include "equivalence/drawn_sharding.h"

#include <fmt/format.h>

namespace trireme::testing {
namespace {

class ShardingMaker {
 public:
  ShardingMaker(const PlanChoices& choices, const models::ModelConfig& model) : choices_(choices), model_(model) {}

  DrawnSharding run() {
    if (has("annotations=some")) annotate();
    if (has("over dp!=rows")) annotate_over_dp();
    if (has("between!=nothing")) annotate_values();
    return {std::move(sharding_), over_dp_};
  }

 private:
  bool has(std::string_view expression) const { return choices_.has(expression); }
  std::string one_of(std::string_view name, const std::vector<std::string>& of) const {
    return choices_.one_of(name, of);
  }
  int number(const char* group) const { return choices_.number(group); }
  bool words() const { return has("model=gpt2|llama"); }

  // In the place of the presets, some of which are left out.
  void annotate() {
    if (words()) {
      const bool gpt2 = has("model=gpt2");
      const std::string first = gpt2 ? "*.mlp.up.weight" : "*.mlp.gate.weight";
      const std::string kind = one_of("annotation", {"columns", "rows too", "attention", "positions"});
      sharding_ = {{first, "out:tp"}};
      if (kind == "rows too") sharding_["*.mlp.down.weight"] = "in:tp";
      if (kind == "attention") sharding_ = {{gpt2 ? "*.attn.qkv.weight" : "*.attn.q.weight", "out:tp"}};
      if (kind == "positions" && model_.context % number("tp") == 0) sharding_["tokens"] = "sequence:tp";
      if (has("dp!=1") && choices_.coin("rows")) sharding_["targets"] = "batch:dp";
    } else if (has("model=mlp")) {
      sharding_ = {{one_of("layer", {"layers.0.weight", "layers.1.weight"}), one_of("side", {"out:tp", "in:tp"})}};
    } else {
      sharding_ = {{has("model=convnet") ? "blocks.1.conv.weight" : "*.conv2.weight", "out:tp"}};
      if (has("h!=1") && has("w=1") && choices_.coin("turned")) sharding_["images"] = "width:h";
    }
  }

  bool untied() const { return has("tables=untied") || (has("model=llama") && has("tables!=tied")); }

  // What a family has for tp by itself, where the user gives something else.
  std::map<std::string, std::string> own_of_family() const {
    if (has("tp=1")) return {};
    if (has("model=convnet")) return {{"blocks.0.conv.weight", "out:tp"}};
    if (has("model=resnet18")) return {{"*.conv1.weight", "out:tp"}};
    std::map<std::string, std::string> all;
    if (has("model=mlp"))
      for (int i = 0; i < model_.layers; i += 2) all[fmt::format("layers.{}.weight", i)] = "out:tp";
    if (has("model=gpt2"))
      all = {{"*.attn.qkv.weight", "out:tp"}, {"*.mlp.up.weight", "out:tp"}, {"wte.weight", "vocab:tp"}};
    if (has("model=llama"))
      all = {{"*.attn.q.weight", "out:tp"}, {"*.mlp.gate.weight", "out:tp"}, {"embed.weight", "vocab:tp"}};
    if (words() && untied()) all["head.weight"] = "vocab:tp";
    return all;
  }

  // Parameters that are annotated over dp, which shares out rows as well.
  void annotate_over_dp() {
    if (sharding_.empty()) sharding_ = own_of_family();
    std::vector<std::string> kinds = {choices_["over dp"]};
    if (kinds.front() == "several") {
      kinds = {"outputs", "inputs", "vectors"};
      if (words()) kinds.emplace_back("tables");
      kinds.erase(kinds.begin() + choices_.below(static_cast<std::uint32_t>(kinds.size()), "left out"));
    }
    for (const std::string& kind : kinds) {
      if (kind == "rows given") {
        give_rows();
        continue;
      }
      const auto [pattern, dimension] = parameter_of(kind);
      std::string& given = sharding_[pattern];
      if (given.find(":dp") != std::string::npos) continue;
      // A tensor that tp has already gets another dimension, or ranks of both along the same.
      given += (given.empty() ? "" : ",") + dimension + ":dp";
      over_dp_ = true;
    }
  }

  // What is between layers, over tp: rows, which dp has too, or another dimension where tp divides it.
  void annotate_values() {
    const std::string& kind = choices_["between"];
    const std::int64_t tp = number("tp");
    const auto images = [&](const char* name) { return words() || has("model=mlp") ? "1" : name; };
    std::string dimension = "batch";
    if (kind == "positions") {
      if ((words() ? model_.context : model_.image) % tp != 0 || has("model=mlp|resnet18")) return;
      dimension = images("height");
    }
    if (kind == "features") {
      if (model_.width % tp != 0) return;
      dimension = words() ? "feature" : images("channel");
    }
    if (kind == "rows" && 12 % (tp * number("micro-batches")) != 0) return;
    if (sharding_.empty()) sharding_ = own_of_family();
    const std::string value = words() ? one_of("value", {"*.add", "blocks.1.*.add", "*.mlp.down.matmul"}) : "*.relu";
    sharding_[has("model=resnet18") ? "*.add" : value] = dimension + ":tp";
  }

  // A pattern, and the name of a dimension.
  std::pair<std::string, std::string> parameter_of(const std::string& kind) const {
    const bool gpt2 = has("model=gpt2");
    std::vector<std::string> patterns;
    if (kind == "tables") {
      patterns = {gpt2 ? "wte.weight" : "embed.weight"};
      if (untied()) patterns.emplace_back("head.weight");
      if (gpt2) patterns.emplace_back("wpe.weight");
      const std::string pattern = one_of("table", patterns);
      // The positions of a table are as many as there are.
      return {pattern, pattern == "wpe.weight" ? "in" : one_of("side of the table", {"vocab", "in"})};
    }
    if (has("model=gpt2")) {
      if (kind == "vectors") return {one_of("vector", {"*.ln1.weight", "*.mlp.up.bias", "ln_f.bias"}), "0"};
      patterns = {"*.mlp.up.weight", "*.mlp.down.weight", "blocks.1.attn.proj.weight"};
      if (kind == "inputs") patterns.emplace_back("*.attn.qkv.weight");
    } else if (has("model=llama")) {
      if (kind == "vectors")
        return {one_of("vector", {"*.attn_norm.weight", "blocks.0.mlp_norm.weight", "norm.weight"}), "0"};
      patterns = {"*.mlp.up.weight", "*.mlp.down.weight", "blocks.1.mlp.gate.weight"};
      patterns.emplace_back(kind == "inputs" ? "*.attn.k.weight" : "*.attn.o.weight");
    } else if (has("model=mlp")) {
      if (kind == "vectors") return {one_of("vector", {"layers.0.bias", "layers.1.bias"}), "0"};
      patterns = {"layers.0.weight", "layers.1.weight", "layers.2.weight"};
    } else if (has("model=convnet")) {
      if (kind == "vectors") return {one_of("vector", {"blocks.0.bn.weight", "blocks.1.bn.bias"}), "0"};
      patterns = {"blocks.1.conv.weight"};
      patterns.emplace_back(kind == "inputs" ? "head.weight" : "blocks.0.conv.weight");
    } else {
      if (kind == "vectors") return {one_of("vector", {"*.bn1.weight", "*.bn2.bias"}), "0"};
      patterns = {"*.conv1.weight", "*.conv2.weight"};
    }
    return {one_of("matrix for " + kind, patterns), kind == "inputs" ? "in" : "out"};
  }

  // What is so by itself, in the user's words; and positions over tp.
  void give_rows() {
    if (!words()) {
      if (choices_.coin("images' rows")) sharding_["labels"] = "batch:dp";
      if (sharding_.contains("images")) return;
      sharding_["images"] = "batch:dp";
      if (has("h!=1")) sharding_["images"] += ",height:h";
      if (has("w!=1")) sharding_["images"] += ",width:w";
      return;
    }
    const bool positions = has("tp!=1") && model_.context % number("tp") == 0 && choices_.coin("positions");
    if (!sharding_.contains("tokens")) sharding_["tokens"] = positions ? "batch:dp,sequence:tp" : "batch:dp";
    if (choices_.coin("rows of targets")) sharding_["targets"] = sharding_["tokens"];
  }

  const PlanChoices& choices_;
  const models::ModelConfig& model_;
  std::map<std::string, std::string> sharding_;
  bool over_dp_ = false;
};

}  // namespace

DrawnSharding draw_sharding(const PlanChoices& choices, const models::ModelConfig& model) {
  return ShardingMaker(choices, model).run();
}

}  // namespace trireme::testing
