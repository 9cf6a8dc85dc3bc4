#include "trireme/core/error.h"
#include "trireme/core/numbers.h"
#include "trireme/models/model.h"

namespace trireme::models {

void check_heads(const ModelConfig& c, const OptionNames& names) {
  if (c.head_dim == 0 && c.width % c.heads != 0)
    refuse("{} = {} must be a multiple of {} = {}; the nearest number of heads that divides it is {}", names.width,
           c.width, names.heads, c.heads, nearest_divisor(c.width, c.heads));
  if (c.kv_heads != 0 && c.heads % c.kv_heads != 0)
    refuse("{} = {} must be a multiple of {} = {}; the nearest number that divides it is {}", names.heads, c.heads,
           names.kv_heads, c.kv_heads, nearest_divisor(c.heads, c.kv_heads));
  if (c.document_end >= c.vocab && c.vocab > 0)
    refuse("{} = {} is not among the {} tokens of the vocabulary (0 to {})", names.document_end, c.document_end,
           c.vocab, c.vocab - 1);
}

}  // namespace trireme::models
