#include "trireme/train/huggingface.h"

#include <optional>
#include <set>

#include "trireme/compiler/saved_state.h"
#include "trireme/passes/prune.h"
#include "trireme/train/load_slice.h"
#include "trireme/train/pruned_weights.h"

namespace trireme::train {

namespace fs = std::filesystem;

bool is_huggingface_folder(const fs::path& folder) {
  std::error_code unknown;
  return fs::exists(folder / "config.json", unknown) && !fs::exists(folder / "config.toml", unknown);
}

std::size_t load_huggingface(const std::string& folder, Session& session) {
  const io::HfConfig config = io::read_hf_config(folder);
  return load_huggingface(io::HfWeights(folder, config.model), session);
}

std::size_t load_huggingface(const io::HfWeights& weights, Session& session) {
  const auto& prune = session.compiled().plan.prune;
  const bool prunes_elements = prune && !prune->parameters.empty();
  std::set<std::string> masked;
  // Each process reads what its own ranks store.
  for (const auto& rank : session.ranks())
    for (const ir::State& state : rank->role().module.states) {
      const auto read = [&](const std::string& name) {
        return [&weights, &state, name](const ir::Slice& slice, std::span<std::byte> out) {
          weights.read(name, state.global_shape(), slice,
                       {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
        };
      };
      if (state.trained && compiler::is_saved(state)) load_slice(*rank, state, read(state.name));
      const auto parameter = prunes_elements ? passes::masked_parameter(state.name) : std::nullopt;
      if (parameter && set_mask_from(*rank, state, read(*parameter))) masked.insert(state.name);
    }
  session.refresh_copies();
  return masked.size();
}

}  // namespace trireme::train
