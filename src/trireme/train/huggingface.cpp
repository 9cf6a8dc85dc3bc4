#include "trireme/train/huggingface.h"

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
  for (const ir::State& state : session.compiled().saved_states()) {
    if (!state.trained) continue;
    const TensorType whole{state.type.dtype, state.global_shape()};
    std::span<std::byte> bytes;
    if (session.compiled().ranks() == 1) bytes = session.rank(0).resident_state(state.name);
    std::vector<std::byte> elsewhere(bytes.empty() ? whole.bytes() : 0);
    if (bytes.empty()) bytes = elsewhere;
    weights.read(state.name, whole.shape, {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
    if (!elsewhere.empty()) session.write_state(state.name, 0, elsewhere);
  }
  session.derive();
}

}  // namespace trireme::train
