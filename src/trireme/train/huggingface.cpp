#include "trireme/train/huggingface.h"

#include "trireme/compiler/saved_state.h"
#include "trireme/train/load_slice.h"

namespace trireme::train {

namespace fs = std::filesystem;

bool is_huggingface_folder(const fs::path& folder) {
  std::error_code unknown;
  return fs::exists(folder / "config.json", unknown) && !fs::exists(folder / "config.toml", unknown);
}

void load_huggingface(const std::string& folder, Session& session) {
  const io::HfConfig config = io::read_hf_config(folder);
  load_huggingface(io::HfWeights(folder, config.model), session);
}

void load_huggingface(const io::HfWeights& weights, Session& session) {
  // Each process reads what its own ranks store.
  for (const auto& rank : session.ranks())
    for (const ir::State& state : rank->role().module.states) {
      if (!state.trained || !compiler::is_saved(state)) continue;
      load_slice(*rank, state, [&](const ir::Slice& slice, std::span<std::byte> out) {
        weights.read(state.name, state.global_shape(), slice,
                     {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
      });
    }
  session.refresh_copies();
}

}  // namespace trireme::train
