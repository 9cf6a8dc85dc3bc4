#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/device/cuda/convolution.h"

// What is known of convolutions without the library.
namespace trireme::device::cuda {

double ConvolutionSpec::flops() const {
  const std::int64_t depth = r * s * (c / groups);
  return 2.0 * static_cast<double>(n * p * q * k) * static_cast<double>(depth);
}

std::string ConvolutionSpec::str() const {
  const char* const names[] = {"forward", "input", "weight"};
  return fmt::format("{}/{}x{}x{}x{}/{}x{}x{}/{}x{}/s{}.{}p{}.{}d{}.{}g{}/{}{}>{}", names[static_cast<int>(pass)], n, h,
                     w, c, k, r, s, p, q, stride[0], stride[1], padding[0], padding[1], dilation[0], dilation[1],
                     groups, tf32 ? "t" : "", name_of(input), name_of(output));
}

std::int64_t ConvolutionSpec::padding_after(std::size_t dimension) const {
  const std::int64_t before = padding[dimension];
  const std::int64_t extent = dimension == 0 ? h : w;
  const std::int64_t positions = dimension == 0 ? p : q;
  const std::int64_t reach = ((dimension == 0 ? r : s) - 1) * dilation[dimension] + 1;
  if ((extent + 2 * before - reach) / stride[dimension] + 1 == positions) return before;
  return std::max<std::int64_t>(0, (positions - 1) * stride[dimension] + reach - extent - before);
}

std::optional<GemmSpec> as_product(const ConvolutionSpec& s) {
  const std::array<std::int64_t, 2> ones{1, 1};
  const std::array<std::int64_t, 2> zeros{0, 0};
  if (s.r != 1 || s.s != 1 || s.stride != ones || s.padding != zeros || s.groups != 1) return std::nullopt;
  if (s.p != s.h || s.q != s.w) return std::nullopt;  // padded behind the image
  const std::int64_t pixels = s.n * s.h * s.w;
  GemmSpec g;
  g.input = s.input;
  g.output = s.output;
  g.tf32 = s.tf32;
  switch (s.pass) {
    case ConvolutionSpec::Pass::forward:
      g.m = pixels, g.n = s.k, g.k = s.c, g.trans_b = true;
      g.lda = s.c, g.ldb = s.c, g.ldc = s.k;
      break;
    case ConvolutionSpec::Pass::input_gradient:
      g.m = pixels, g.n = s.c, g.k = s.k;
      g.lda = s.k, g.ldb = s.c, g.ldc = s.c;
      break;
    case ConvolutionSpec::Pass::weight_gradient:
      g.m = s.k, g.n = s.c, g.k = pixels, g.trans_a = true;
      g.lda = s.k, g.ldb = s.c, g.ldc = s.c;
      break;
  }
  return g;
}

}  // namespace trireme::device::cuda
