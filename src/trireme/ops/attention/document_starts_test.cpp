#include <gtest/gtest.h>

#include "support/op_check.h"

namespace trireme {
namespace {

using testing::OpCase;
using testing::Tensor;

// Rows shorter and longer than what a block of threads takes at once, documents of one token among them.
TEST(DocumentStarts, AreOfTheTokenAfterAnEnd) {
  for (const std::int64_t length : {1, 7, 256, 1000}) {
    OpCase c;
    c.op = "document_starts";
    c.inputs = {{DType::i32, {3, length}}};
    c.attributes = {{"end", std::int64_t{2}}};
    c.fill = [](std::size_t, std::size_t element) { return static_cast<double>(element * element % 37 % 5); };
    c.reference = [=](const std::vector<Tensor>& in) {
      Tensor starts = in[0];
      for (std::int64_t row = 0; row < 3; ++row) {
        std::int64_t start = 0;
        for (std::int64_t i = 0; i < length; ++i) {
          const auto at = static_cast<std::size_t>(row * length + i);
          starts[at] = static_cast<double>(start);
          if (in[0][at] == 2) start = i + 1;
        }
      }
      return std::vector<Tensor>{starts};
    };
    check_op(c);
  }
}

}  // namespace
}  // namespace trireme
