#include "trireme/ops/conv/spatial.h"

#include <algorithm>
#include <array>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/ops/collective/halo.h"

namespace trireme::ops {

Window pool_window(const ir::Attributes& attributes);

namespace {

using ir::Range;
using ir::ValueId;
using Pair = std::array<std::int64_t, 2>;

constexpr int kHeight = 1;  // the first of the two dimensions of an image [n, h, w, c]

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }
std::int64_t divide_down(std::int64_t a, std::int64_t b) { return -divide_up(-a, b); }

// One dimension of a node's images.
struct Dimension {
  int dim = kHeight;
  std::string axis;  // empty: not sharded
  int place = 0;
  SlidingWindow window;
};

// `x` and `y` are the node's images, whole.
Dimension dimension_of(const ir::PartitionContext& p, const std::vector<std::string>& axes, int i, const Window& window,
                       const Shape& x, const Shape& y) {
  const auto at = static_cast<std::size_t>(i);
  Dimension d;
  d.dim = kHeight + i;
  d.window = {x[d.dim], y[d.dim], window.reach(at), window.stride[at], window.padding[at]};
  if (axes.empty()) return d;
  TRI_CHECK(axes.size() == 1, "dimension {} of an image is sharded over {} axes", d.dim, axes.size());
  d.axis = axes.front();
  d.window.parts = p.size_of(d.axis);
  d.place = p.fixed_place(d.axis);
  return d;
}

template <class F>
std::vector<Range> each_place(const Dimension& d, F&& f) {
  std::vector<Range> all;
  for (int place = 0; place < d.window.parts; ++place) all.push_back(f(place));
  return all;
}

std::vector<Range> pixels(const Dimension& d) {
  return each_place(d, [&](int place) { return d.window.pixels(place); });
}
std::vector<Range> windows(const Dimension& d) {
  return each_place(d, [&](int place) { return d.window.windows(place); });
}
std::vector<Range> read(const Dimension& d) {
  return each_place(d, [&](int place) { return d.window.read(place); });
}
std::vector<Range> reaching(const Dimension& d) {
  return each_place(d, [&](int place) { return d.window.reaching(place); });
}

ValueId sliced(ir::PartitionContext& p, ValueId x, int dim, std::int64_t start, std::int64_t end) {
  if (start == 0 && end == p.type(x).shape[dim]) return x;
  return p.add("slice", {x}, {{"dim", std::int64_t{dim}}, {"start", start}, {"end", end}}).front();
}

// The range of a dimension that the rank needs, of which it has its slice.
ValueId fetched(ir::PartitionContext& p, ValueId x, const Dimension& d, std::vector<Range> have,
                std::vector<Range> need) {
  const Halo halo(d.dim, d.place, std::move(have), std::move(need));
  if (halo.same()) return x;
  if (halo.local())
    return sliced(p, x, d.dim, halo.needed().first - halo.own().first, halo.needed().last - halo.own().first);
  return p.add(std::string(kHaloExchange), {x}, halo.attributes(d.axis)).front();
}

// Sums of what the ranks have of each other's slices.
ValueId returned(ir::PartitionContext& p, ValueId x, const Dimension& d, std::vector<Range> have,
                 std::vector<Range> need) {
  const Halo halo(d.dim, d.place, std::move(have), std::move(need));
  if (halo.same()) return x;
  if (halo.local())
    return p
        .add("slice_grad", {x},
             {{"dim", std::int64_t{d.dim}},
              {"start", halo.needed().first - halo.own().first},
              {"extent", halo.own().size()}})
        .front();
  return p.add(std::string(kHaloReduce), {x}, halo.attributes(d.axis)).front();
}

// Of windows `made` over the pixels [first, last): what is missing on either side.
struct Margins {
  std::int64_t before = 0;  // negative: so many pixels come before the first window
  std::int64_t after = 0;
};
Margins margins(const SlidingWindow& w, const Range& made, const Range& pixels) {
  const std::int64_t first = made.first * w.stride - w.padding;
  const std::int64_t last = (made.last - 1) * w.stride - w.padding + w.reach;
  return {pixels.first - first, std::max<std::int64_t>(0, last - pixels.last)};
}

std::vector<std::int64_t> padding_of(const std::array<Margins, 2>& m) {
  return {m[0].before, m[1].before, m[0].after, m[1].after};
}

std::array<Dimension, 2> dimensions_of(const ir::PartitionContext& p, const Window& window, const TensorType& x,
                                       const TensorType& y, bool x_is_input, std::size_t y_or_x = 0) {
  std::array<Dimension, 2> both;
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string>& axes =
        x_is_input ? p.input_axes(y_or_x, kHeight + i) : p.output_axes(y_or_x, kHeight + i);
    both[static_cast<std::size_t>(i)] = dimension_of(p, axes, i, window, x.shape, y.shape);
  }
  return both;
}

// The gradients of a convolution see the rank's own pixels and all windows that read some of them. Pixels before the
// first of those windows are left out.
struct OwnPixels {
  std::array<Dimension, 2> dims;
  std::array<Margins, 2> margins;
  std::array<std::int64_t, 2> skipped{0, 0};

  explicit OwnPixels(const std::array<Dimension, 2>& d) : dims(d) {
    for (std::size_t i = 0; i < 2; ++i) {
      const SlidingWindow& w = dims[i].window;
      margins[i] = ops::margins(w, w.reaching(dims[i].place), w.pixels(dims[i].place));
      skipped[i] = std::max<std::int64_t>(0, -margins[i].before);
      margins[i].before = std::max<std::int64_t>(0, margins[i].before);
    }
  }

  ValueId gradient(ir::PartitionContext& p, ValueId dy) const {
    for (const Dimension& d : dims)
      if (!d.axis.empty()) dy = fetched(p, dy, d, windows(d), reaching(d));
    return dy;
  }
  std::int64_t extent(std::size_t i) const { return dims[i].window.pixels(dims[i].place).size() - skipped[i]; }
};

}  // namespace

Range SlidingWindow::read(int place) const { return read(windows(place)); }

Range SlidingWindow::reaching(int place) const {
  const Range own = pixels(place);
  const Range all{std::max<std::int64_t>(0, divide_up(own.first + padding - reach + 1, stride)),
                  std::min(positions, divide_down(own.last - 1 + padding, stride) + 1)};
  TRI_CHECK(!all.empty(), "no window reads pixels {} to {}", own.first, own.last);
  return all;
}

bool SlidingWindow::slides_over_own(int place) const {
  const Range made = windows(place);
  const Range own = pixels(place);
  const std::int64_t first = made.first * stride - padding;
  const std::int64_t last = (made.last - 1) * stride - padding + reach;
  const bool starts_there = own.first >= first && own.first < first + reach;
  const bool ends_there = own.last > last - reach && own.last < last + stride;
  return starts_there && ends_there;
}

std::optional<SlidingWindow::Split> SlidingWindow::split(int place) const {
  const Range made = windows(place);
  const Range own = pixels(place);
  const std::int64_t first = own.first == 0 ? made.first : divide_up(own.first + padding, stride);
  const std::int64_t last = own.last == extent ? made.last : divide_down(own.last + padding - reach, stride) + 1;
  const Range inner{std::max(first, made.first + 1), std::min(last, made.last - 1)};
  if (inner.empty() || !slides_over_own(place)) return std::nullopt;
  return Split{{made.first, inner.first}, inner, {inner.last, made.last}};
}

Range SlidingWindow::read(const Range& made) const {
  const std::int64_t first = made.first * stride - padding;
  const std::int64_t last = (made.last - 1) * stride - padding + reach;
  const Range inside{std::max<std::int64_t>(0, first), std::min(extent, last)};
  TRI_CHECK(!inside.empty(), "windows {} to {} read nothing of {} pixels", made.first, made.last, extent);
  return inside;
}

bool may_shard(const Window& window) {
  for (std::size_t i = 0; i < 2; ++i)
    if (std::max(window.padding[i], window.padding_after[i]) >= window.reach(i)) return false;
  return true;
}

namespace {

// A convolution that is computed before its halos are there, as if nothing but zeros were beyond the rank's own pixels:
// right in the interior. The windows that reach beyond are recomputed from the halos, and take their places.
//
//   comm       halos ──┐
//   compute    all ────┴── first rows, last rows
class SplitConvolution {
 public:
  // Nothing where no halo is exchanged, or some rank would compute more than an eighth of its windows twice: that takes
  // longer than a halo.
  static std::optional<SplitConvolution> of(const Dimension& d) {
    if (d.axis.empty() || Halo(d.dim, d.place, pixels(d), read(d)).local()) return std::nullopt;
    SplitConvolution split(d);
    for (int place = 0; place < d.window.parts; ++place) {
      const auto parts = d.window.split(place);
      if (!parts) return std::nullopt;
      split.parts_.push_back(*parts);
    }
    for (std::size_t place = 0; place < split.parts_.size(); ++place) {
      std::int64_t twice = 0;
      for (const std::vector<Range>& band : split.bands()) twice += band[place].size();
      if (kWindowsPerRedone * twice > d.window.windows(static_cast<int>(place)).size()) return std::nullopt;
    }
    return split;
  }

  const Dimension& dimension() const { return d_; }

  ValueId add(ir::PartitionContext& p, ValueId x, std::array<Margins, 2> around, std::size_t i) const {
    const SlidingWindow& w = d_.window;
    const Range made = w.windows(d_.place);
    const auto convolved = [&](ValueId from, const Range& windows, const Range& over) {
      around[i] = margins(w, windows, over);
      ir::Attributes attributes = p.attributes();
      attributes.set("padding", padding_of(around));
      return p.add("conv2d", {from, p.input(1), p.input(2)}, attributes).front();
    };
    const std::vector<std::vector<Range>> all = bands();
    std::vector<ValueId> halos;
    for (const std::vector<Range>& windows : all)
      halos.push_back(fetched(p, x, d_, pixels(d_), each_place(d_, [&](int place) {
                                return w.read(windows[static_cast<std::size_t>(place)]);
                              })));
    ValueId y = convolved(x, made, w.pixels(d_.place));
    for (std::size_t b = 0; b < halos.size(); ++b) {
      const Range& windows = all[b][static_cast<std::size_t>(d_.place)];
      const ValueId band = convolved(halos[b], windows, w.read(windows));
      y = p.add("slice_update", {y, band}, {{"dim", std::int64_t{d_.dim}}, {"start", windows.first - made.first}})
              .front();
    }
    return y;
  }

 private:
  static constexpr std::int64_t kWindowsPerRedone = 8;

  explicit SplitConvolution(Dimension d) : d_(std::move(d)) {}

  // By band and place: the windows to recompute. Of two ranks each has one neighbour. Of more those at the edges
  // have one too, and take part in the exchanges of both bands all the same.
  std::vector<std::vector<Range>> bands() const {
    std::vector<Range> before;
    std::vector<Range> after;
    for (const SlidingWindow::Split& part : parts_) {
      before.push_back(part.before);
      after.push_back(part.after);
    }
    if (parts_.size() == 2) return {{after[0], before[1]}};
    return {before, after};
  }

  Dimension d_;
  std::vector<SlidingWindow::Split> parts_;  // by place
};

}  // namespace

void partition_conv2d(ir::PartitionContext& p) {
  const ConvProblem whole = conv_problem(p.whole_input(0), p.whole_input(1), p.attributes());
  const auto dims = dimensions_of(p, whole.window, p.whole_input(0), p.whole_output(0), true);
  std::array<Margins, 2> around;
  for (std::size_t i = 0; i < 2; ++i) {
    const SlidingWindow& w = dims[i].window;
    around[i] = margins(w, w.windows(dims[i].place), w.read(dims[i].place));
  }
  // The halo of one dimension is overlapped; corners come with it where the other's is there first.
  std::optional<SplitConvolution> split;
  std::size_t along = 0;
  for (; along < 2 && p.overlaps_halos() && !split; ++along) split = SplitConvolution::of(dims[along]);
  ValueId x = p.input(0);
  for (const Dimension& d : dims)
    if (!d.axis.empty() && !(split && split->dimension().dim == d.dim)) x = fetched(p, x, d, pixels(d), read(d));
  if (split) return p.set(0, split->add(p, x, around, along - 1));
  ir::Attributes attributes = p.attributes();
  attributes.set("padding", padding_of(around));
  p.set(0, p.add("conv2d", {x, p.input(1), p.input(2)}, attributes).front());
}

void partition_conv2d_grad_input(ir::PartitionContext& p) {
  const ConvProblem whole = conv_input_gradient_problem(p.whole_input(0), p.whole_input(1), p.attributes());
  const OwnPixels own(dimensions_of(p, whole.window, p.whole_output(0), p.whole_input(0), false));
  ir::Attributes attributes = p.attributes();
  attributes.set("padding", padding_of(own.margins));
  attributes.set("height", own.extent(0));
  attributes.set("width", own.extent(1));
  ValueId dx = p.add("conv2d_grad_input", {own.gradient(p, p.input(0)), p.input(1)}, attributes).front();
  for (std::size_t i = 0; i < 2; ++i)
    if (const std::int64_t skipped = own.skipped[i]; skipped > 0)
      dx = p.add("slice_grad", {dx},
                 {{"dim", static_cast<std::int64_t>(kHeight + i)},
                  {"start", skipped},
                  {"extent", own.extent(i) + skipped}})
               .front();
  p.set(0, dx);
}

namespace {

// Bytes that all ranks together send for a halo of an image of this type.
double halo_bytes(const Dimension& d, const TensorType& whole, const std::vector<Range>& have,
                  const std::vector<Range>& need) {
  const Halo halo(d.dim, d.place, have, need);
  std::int64_t rows = 0;
  for (int from = 0; from < halo.ranks(); ++from)
    for (int to = 0; to < halo.ranks(); ++to)
      if (from != to) rows += halo.between(from, to).size();
  return static_cast<double>(rows) * static_cast<double>(whole.bytes()) / static_cast<double>(whole.shape[d.dim]);
}

// Whether the weights' gradient takes a halo of x and the rank's own windows: a first layer's has no halo of dy that is
// exchanged anyway, and its images have few channels.
bool takes_halo_of_x(const ir::PartitionContext& p, const std::array<Dimension, 2>& dims) {
  double of_x = 0;
  double of_dy = 0;
  for (const Dimension& d : dims) {
    if (d.axis.empty()) continue;
    const Halo halo(d.dim, d.place, windows(d), reaching(d));
    if (p.is_exchanged(p.input(1), halo.attributes(d.axis))) return false;
    of_x += halo_bytes(d, p.whole_input(0), pixels(d), read(d));
    of_dy += halo_bytes(d, p.whole_input(1), windows(d), reaching(d));
  }
  return of_x < of_dy;
}

}  // namespace

void partition_conv2d_grad_weight(ir::PartitionContext& p) {
  const ConvProblem whole = conv_weight_gradient_problem(p.whole_input(0), p.whole_input(1), p.attributes());
  const auto dims = dimensions_of(p, whole.window, p.whole_input(0), p.whole_input(1), true);
  ir::Attributes attributes = p.attributes();
  ValueId x = p.input(0);
  ValueId dy = p.input(1);
  if (takes_halo_of_x(p, dims)) {
    std::array<Margins, 2> around;
    for (std::size_t i = 0; i < 2; ++i) {
      const Dimension& d = dims[i];
      around[i] = margins(d.window, d.window.windows(d.place), d.window.read(d.place));
      if (!d.axis.empty()) x = fetched(p, x, d, pixels(d), read(d));
    }
    attributes.set("padding", padding_of(around));
  } else {
    const OwnPixels own(dims);
    for (std::size_t i = 0; i < 2; ++i) {
      const int dim = own.dims[i].dim;
      x = sliced(p, x, dim, own.skipped[i], p.type(x).shape[dim]);
    }
    dy = own.gradient(p, dy);
    attributes.set("padding", padding_of(own.margins));
  }
  p.set(0, p.add("conv2d_grad_weight", {x, dy}, attributes).front(), true);
}

namespace {

// A pooling of the pixels that the rank's windows read.
struct Pooled {
  std::array<Dimension, 2> dims;
  ir::Attributes attributes;  // with the margins, and where the pixels are in the whole image
};

Pooled pooled(const ir::PartitionContext& p, const std::array<Dimension, 2>& dims) {
  Pooled result{dims, p.attributes()};
  std::array<Margins, 2> around;
  std::vector<std::int64_t> origin;
  for (std::size_t i = 0; i < 2; ++i) {
    const SlidingWindow& w = dims[i].window;
    around[i] = margins(w, w.windows(dims[i].place), w.read(dims[i].place));
    // A dimension that is not sharded keeps the pixels that no window reads.
    origin.push_back(dims[i].axis.empty() ? 0 : w.read(dims[i].place).first);
  }
  result.attributes.set("padding", padding_of(around));
  if (p.attributes().find("origin") != nullptr) {
    result.attributes.set("origin", origin);
    result.attributes.set("whole_width", dims[1].window.extent);
  }
  return result;
}

}  // namespace

void partition_pool2d(ir::PartitionContext& p) {
  const Pooled local =
      pooled(p, dimensions_of(p, pool_window(p.attributes()), p.whole_input(0), p.whole_output(0), true));
  ValueId x = p.input(0);
  for (const Dimension& d : local.dims)
    if (!d.axis.empty()) x = fetched(p, x, d, pixels(d), read(d));
  const auto outputs = p.add(p.outputs() == 2 ? "max_pool2d" : "avg_pool2d", {x}, local.attributes);
  for (std::size_t o = 0; o < outputs.size(); ++o) p.set(o, outputs[o]);
}

void partition_pool2d_grad(ir::PartitionContext& p) {
  Pooled local = pooled(p, dimensions_of(p, pool_window(p.attributes()), p.whole_output(0), p.whole_input(0), false));
  constexpr std::array kExtents = {"height", "width"};
  for (std::size_t i = 0; i < 2; ++i)
    if (const Dimension& d = local.dims[i]; !d.axis.empty())
      local.attributes.set(kExtents[i], d.window.read(d.place).size());
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < p.inputs(); ++i) inputs.push_back(p.input(i));
  ValueId dx = p.add(p.inputs() == 2 ? "max_pool2d_grad" : "avg_pool2d_grad", inputs, local.attributes).front();
  for (auto d = local.dims.rbegin(); d != local.dims.rend(); ++d)
    if (!d->axis.empty()) dx = returned(p, dx, *d, pixels(*d), read(*d));
  p.set(0, dx);
}

}  // namespace trireme::ops
