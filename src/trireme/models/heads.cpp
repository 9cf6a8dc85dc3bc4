#include "trireme/core/error.h"
#include "trireme/core/numbers.h"
#include "trireme/models/model.h"

namespace trireme::models {

void check_heads(const ModelConfig& c) {
  if (c.head_dim == 0 && c.width % c.heads != 0)
    refuse("model.width = {} must be a multiple of model.heads = {}; the nearest number of heads that divides it is {}",
           c.width, c.heads, nearest_divisor(c.width, c.heads));
  if (c.kv_heads != 0 && c.heads % c.kv_heads != 0)
    refuse("model.heads = {} must be a multiple of model.kv_heads = {}; the nearest number that divides it is {}",
           c.heads, c.kv_heads, nearest_divisor(c.heads, c.kv_heads));
  if (c.document_end >= c.vocab && c.vocab > 0)
    refuse("model.document_end = {} is not among the {} tokens of the vocabulary (0 to {})", c.document_end, c.vocab,
           c.vocab - 1);
}

}  // namespace trireme::models
