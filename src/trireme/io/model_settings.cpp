#include "trireme/io/model_settings.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::io {

void read_heads(const HfSettings& s, const HeadKeys& keys, ModelConfig& m) {
  m.kv_heads = keys.kv_heads.empty() ? m.heads : s.size({keys.kv_heads}, m.heads);
  const bool own_size = !keys.head_dim.empty() && s.has(keys.head_dim);
  if (!own_size && m.width % m.heads != 0)
    s.refuse_value(keys.width,
                   fmt::format("not a multiple of the {} heads{}", m.heads,
                               keys.head_dim.empty() ? "" : fmt::format(", and there is no {}", keys.head_dim)));
  m.head_dim = own_size ? s.size({keys.head_dim}, 0) : m.width / m.heads;
  if (m.heads % m.kv_heads != 0) s.refuse_value(keys.kv_heads, fmt::format("does not divide the {} heads", m.heads));
}

void check_size(const HfSettings& s, std::string_view layers, std::string_view width, const ModelConfig& m) {
  constexpr std::int64_t kMaxLayers = 10'000;
  constexpr double kMaxParameters = 1e15;
  if (m.layers > kMaxLayers) s.refuse_value(layers, fmt::format("more layers than the {} of any model", kMaxLayers));
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const double attention = number(m.head_dim) * (2 * number(m.heads) + 2 * number(m.kv_heads));
  const double parameters =
      number(m.width) * (number(m.vocab) + number(m.context) + number(m.layers) * (attention + 3 * number(m.ffn)));
  if (parameters > kMaxParameters)
    s.refuse_value(width, fmt::format("with the other sizes it makes about {:.0e} parameters, more than any model has",
                                      parameters));
}

}  // namespace trireme::io
